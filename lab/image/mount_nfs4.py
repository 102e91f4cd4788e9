#!/usr/bin/python3
"""mount.nfs4 for a machine whose kernel has no NFS: NFSv4 by libnfs, shown through FUSE.

mount(8) and systemd call it as they call the kernel's helper: `mount.nfs4 head:/shared /shared -o hard,nfsvers=4.2`.
It returns 0 once the file system is there and serves it from a daemon until it is unmounted. Every caller's own uid,
gid and groups go to the server, a server that restarts is waited for, and other nodes' changes show within a second.

Limits, all of libnfs 5.0: NFSv4.0 whatever version is asked for; times in microseconds; a file can be opened only by
a user who may do to its directory what is asked of the file; locks are local to the node.
"""

import argparse
import ctypes
import errno
import grp
import os
import pwd
import re
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

HARD_LIMIT_S = 300.0
"""A call waits this long for a server that is away before it fails with EIO (a kernel's hard mount waits for ever)."""

CALL_LIMIT_MS = 20_000
"""A request not answered for this long is sent again over a new connection."""

RETRY_DEFAULT_MIN = 2
"""Minutes to go on trying to reach the server at mount time, as for mount.nfs(8); `retry=N` sets it."""

MOUNT_FAILED = 32
"""mount(8)'s exit status for a mount that failed."""

MAX_GROUPS = 16
"""AUTH_SYS carries no more supplementary groups."""

UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
"""Nanoseconds that utimensat(2) gives instead of a time."""

GENERIC_OPTIONS = {"ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "atime", "noatime", "sync", "async"}
"""Mount options of any file system; FUSE gets them as they are."""

LOST = {"EXPIRED", "STALE", "STALE_CLIENTID", "STALE_STATEID", "OLD_STATEID", "BAD_STATEID", "BAD_SEQID"}
LOST |= {"FHEXPIRED", "ADMIN_REVOKED", "CLID_INUSE"}
"""NFS errors that mean the server has forgotten this client: connect anew and open the files again."""

BUSY = {"DELAY", "GRACE"}
"""NFS errors that mean: ask again in a moment."""

ERRNO_OF = {"ACCESS": errno.EACCES, "DQUOT": errno.EDQUOT, "NOTSUPP": errno.EOPNOTSUPP, "SYMLINK": errno.ELOOP}
ERRNO_OF |= {"WRONGSEC": errno.EACCES, "SHARE_DENIED": errno.EBUSY, "FILE_OPEN": errno.EBUSY, "LOCKED": errno.EBUSY}
"""NFS errors (without NFS4ERR_) whose errno does not have the same name."""


class Lost(Exception):
    """The connection, or the state behind it, is gone."""


class Busy(Exception):
    """The server asks for patience."""


class Stat(ctypes.Structure):
    """struct nfs_stat_64."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks"),
            *("atime", "mtime", "ctime", "atime_ns", "mtime_ns", "ctime_ns", "used"),
        )
    ]


class Statvfs(ctypes.Structure):
    """struct nfs_statvfs_64."""

    _fields_ = [
        (f"f_{name}", ctypes.c_uint64)
        for name in (
            *("bsize", "frsize", "blocks", "bfree", "bavail", "files"),
            *("ffree", "favail", "fsid", "flag", "namemax"),
        )
    ]


class Timeval(ctypes.Structure):
    """struct timeval."""

    _fields_ = [("seconds", ctypes.c_long), ("microseconds", ctypes.c_long)]


class Dirent(ctypes.Structure):
    """The head of struct nfsdirent."""


Dirent._fields_ = [("next", ctypes.POINTER(Dirent)), ("name", ctypes.c_char_p)]


def load_libnfs() -> ctypes.CDLL:
    """Return libnfs with the types of what is not a plain int."""
    lib = ctypes.CDLL("libnfs.so.14")
    lib.nfs_init_context.restype = ctypes.c_void_p
    lib.nfs_readdir.restype = ctypes.POINTER(Dirent)
    lib.nfs_get_error.restype = ctypes.c_char_p
    return lib


def failure(code: int, message: str) -> Exception:
    """Return what to raise for libnfs's negative `code` and its error text.

    The code alone misleads: libnfs 5.0 reads NFSv4 errors by NFSv3's table, so the name in the text decides.
    EFAULT and EINTR come from the connection, whatever an older text says.
    """
    named = None if -code in {errno.EFAULT, errno.EINTR} else re.search(r"NFS4ERR_(\w+)", message)
    if named is None:
        if "Insufficient ACCESS" in message and -code == errno.EINVAL:
            return OSError(errno.EACCES, message)
        return Lost(message) if -code in {errno.EFAULT, errno.EINTR, errno.EIO} else OSError(-code, message)
    name = named[1]
    if name in LOST:
        return Lost(message)
    if name in BUSY:
        return Busy(message)
    return OSError(ERRNO_OF.get(name, getattr(errno, f"E{name}", errno.EIO)), message)


def supplementary_groups(uid: int, gid: int) -> list[int]:
    """Return the groups, besides `gid`, that this machine's user database gives the user."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return []
    return sorted({entry.gr_gid for entry in grp.getgrall() if name in entry.gr_mem} - {gid})[:MAX_GROUPS]


class Server:
    """The server and its export; every session goes to the one address its name had first."""

    def __init__(self, name: str, export: str) -> None:
        """Prepare for the server called `name` and its `export`; the name is resolved when it is needed."""
        self.name, self.export = name, export
        self._address: str | None = None

    def address(self) -> str:
        """Return the server's IPv4 address (exports name those); raises Lost while it has none."""
        if self._address is None:
            try:
                found = socket.getaddrinfo(self.name, 2049, socket.AF_INET, socket.SOCK_STREAM)
            except socket.gaierror as error:
                raise Lost(f"cannot resolve {self.name}: {error.strerror}") from error
            self._address = str(found[0][4][0])
        return self._address


@dataclass
class Handle:
    """An open file: enough to open it again on a new connection."""

    session: "Session"
    path: bytes
    flags: int
    pointer: ctypes.c_void_p
    generation: int
    dirty: bool = False


class Session:
    """The connection of one identity. Calls take turns; each is repeated until the server has answered it."""

    def __init__(self, lib: ctypes.CDLL, server: Server, uid: int, gid: int) -> None:
        """Prepare a session of `uid` and `gid` with `server`; the first call connects it."""
        self.lib, self.server, self.uid, self.gid = lib, server, uid, gid
        self.lock = threading.RLock()
        self.context: ctypes.c_void_p | None = None
        self.generation = 0

    def run(self, action: Callable[[], T], *, repeated_error: int = 0, limit_s: float = HARD_LIMIT_S) -> T | None:
        """Return what `action` gives, connecting first where needed and again when the connection is lost.

        A repetition may find its own first try done: then `repeated_error` is the error it gets, and None is
        returned. Raises OSError: the server's answer, or EIO when there was none for `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        delay_s, repeated = 0.05, False
        with self.lock:
            while True:
                try:
                    if self.context is None:
                        self._connect()
                    return action()
                except Lost as error:
                    self._drop()
                    repeated, reason = True, error
                except Busy as error:
                    reason = error  # type: ignore[assignment]
                except OSError as error:
                    if repeated and error.errno == repeated_error:
                        return None
                    raise
                if time.monotonic() > deadline:
                    raise OSError(errno.EIO, f"{self.server.name}:{self.server.export}: {reason}")
                time.sleep(delay_s)
                delay_s = min(2 * delay_s, 1.0)

    def call(self, name: str, *arguments: object) -> int:
        """Call one libnfs function on the connection (inside `run`) and return its result.

        Raises Lost, Busy or OSError.
        """
        result = int(getattr(self.lib, name)(self.context, *arguments))
        if result < 0:
            raise failure(result, self._error())
        return result

    def open(self, path: bytes, flags: int) -> ctypes.c_void_p:
        """Open an existing file (inside `run`) and return libnfs's handle."""
        pointer = ctypes.c_void_p()
        self.call("nfs_open", path, flags, ctypes.byref(pointer))
        return pointer

    def pointer(self, handle: Handle) -> ctypes.c_void_p:
        """Return libnfs's handle of an open file (inside `run`), opened again if the connection is a new one."""
        if handle.generation != self.generation:
            handle.pointer = self.open(handle.path, handle.flags)
            handle.generation = self.generation
        return handle.pointer

    def _error(self) -> str:
        return (self.lib.nfs_get_error(self.context) or b"").decode(errors="replace")

    def _connect(self) -> None:
        lib = self.lib
        context = ctypes.c_void_p(lib.nfs_init_context())
        lib.nfs_set_version(context, 4)
        lib.nfs_set_uid(context, self.uid)
        lib.nfs_set_gid(context, self.gid)
        groups = supplementary_groups(self.uid, self.gid)
        lib.nfs_set_auxiliary_gids(context, len(groups), (ctypes.c_uint32 * MAX_GROUPS)(*groups))
        # Two clients of one name would make the server drop the older one's files.
        name = f"{socket.gethostname()} {os.getpid()} {self.uid}:{self.gid} {os.urandom(8).hex()}"
        lib.nfs4_set_client_name(context, name.encode())
        lib.nfs4_set_verifier(context, os.urandom(8))
        # Reconnection is done here: libnfs's own keeps no open files, and it would repeat calls for ever.
        lib.nfs_set_autoreconnect(context, 0)
        lib.nfs_set_timeout(context, CALL_LIMIT_MS)
        lib.nfs_set_tcp_syncnt(context, 3)
        lib.nfs_set_dircache(context, 0)
        lib.nfs_umask(context, 0)
        self.context = context
        self.generation += 1
        try:
            self.call("nfs_mount", self.server.address().encode(), self.server.export.encode())
        except OSError:
            self._drop()
            raise

    def _drop(self) -> None:
        """Forget the connection. Its memory stays: libnfs would write to the stack of the call that was cut off."""
        if self.context is not None:
            descriptor = self.lib.nfs_get_fd(self.context)
            if descriptor >= 0:
                os.close(descriptor)
        self.context = None


class NfsFileSystem:
    """FUSE operations, by the names that fusepy knows; paths are Latin-1 text, that is, bytes as they are."""

    use_ns = True
    flag_utime_omit_ok = 1

    def __init__(self, session: Callable[[int, int], Session], caller: Callable[[], tuple[int, int, int]]) -> None:
        """Serve calls by `session` (a new one for a uid and gid); `caller` gives the calling uid, gid and pid."""
        self._new_session, self._caller = session, caller
        self._sessions: dict[tuple[int, int], Session] = {}
        self._handles: dict[int, Handle] = {}
        self._next_handle = 1
        self._table = threading.Lock()

    def __call__(self, operation: str, *arguments: Any) -> Any:
        """Run the operation called `operation` (fusepy's way in)."""
        return getattr(self, operation)(*arguments)

    def _session(self) -> Session:
        uid, gid, _ = self._caller()
        with self._table:
            key = (uid, gid)
            if key not in self._sessions:
                self._sessions[key] = self._new_session(uid, gid)
            return self._sessions[key]

    def _call(self, name: str, *arguments: object, repeated_error: int = 0) -> int:
        session = self._session()
        return session.run(lambda: session.call(name, *arguments), repeated_error=repeated_error) or 0

    def _register(self, handle: Handle) -> int:
        with self._table:
            number = self._next_handle
            self._next_handle += 1
            self._handles[number] = handle
        return number

    def _stat(self, path: str) -> Stat:
        result = Stat()
        self._call("nfs_lstat64", path.encode("latin-1"), ctypes.byref(result))
        return result

    def getattr(self, path: str, info: Any = None) -> dict[str, int]:
        """lstat(2)."""
        found = self._stat(path)
        return {
            **{f"st_{name}": getattr(found, name) for name in ("ino", "mode", "nlink", "uid", "gid", "rdev", "size")},
            **{
                f"st_{name}": getattr(found, name) * 10**9 + getattr(found, f"{name}_ns")
                for name in ("atime", "mtime", "ctime")
            },
            "st_blocks": (found.used + 511) // 512,
        }

    def readdir(self, path: str, number: int) -> list[str]:
        """List a directory."""
        session = self._session()

        def action() -> list[str]:
            directory = ctypes.c_void_p()
            session.call("nfs_opendir", path.encode("latin-1"), ctypes.byref(directory))
            names = [".", ".."]
            while entry := session.lib.nfs_readdir(session.context, directory):
                name = entry.contents.name.decode("latin-1")
                if name not in {".", ".."}:
                    names.append(name)
            session.lib.nfs_closedir(session.context, directory)
            return names

        return session.run(action) or []

    def open(self, path: str, info: Any) -> int:
        """open(2) of an existing file."""
        session, flags = self._session(), info.flags & (os.O_ACCMODE | os.O_SYNC)
        name = path.encode("latin-1")
        return self._opened(info, session, name, flags, lambda: session.open(name, flags))

    def create(self, path: str, mode: int, info: Any) -> int:
        """open(2) with O_CREAT.

        libnfs creates exclusively whatever it is asked, and puts a random number into the times.
        """
        session, flags = self._session(), info.flags & (os.O_ACCMODE | os.O_SYNC)
        name, exclusive = path.encode("latin-1"), bool(info.flags & os.O_EXCL)
        tries = 0

        def action() -> ctypes.c_void_p:
            nonlocal tries
            tries += 1
            pointer = ctypes.c_void_p()
            wanted = os.O_CREAT | os.O_EXCL | os.O_RDWR | (flags & os.O_SYNC)
            try:
                session.call("nfs_open2", name, wanted, stat.S_IMODE(mode), ctypes.byref(pointer))
            except OSError as error:
                if error.errno != errno.EEXIST or (exclusive and tries == 1):
                    raise
                return session.open(name, flags)
            session.call("nfs_utimes", name, None)
            return pointer

        return self._opened(info, session, name, flags, action)

    def _opened(
        self, info: Any, session: Session, path: bytes, flags: int, action: Callable[[], ctypes.c_void_p]
    ) -> int:
        """Open by `action` and put the handle's number into FUSE's `info`."""
        with session.lock:
            pointer = session.run(action)
            if pointer is None:
                raise OSError(errno.EIO, "no handle")
            info.fh = self._register(Handle(session, path, flags, pointer, session.generation))
        # What is appended goes to the end that the server knows, so the kernel must not keep pages of it.
        info.direct_io = 1 if info.flags & os.O_APPEND else 0
        return 0

    def read(self, path: str, size: int, offset: int, info: Any) -> bytes:
        """pread(2)."""
        handle = self._handles[info.fh]
        session, buffer = handle.session, ctypes.create_string_buffer(size)

        def action() -> int:
            where = (ctypes.c_uint64(offset), ctypes.c_uint64(size))
            return session.call("nfs_pread", session.pointer(handle), *where, buffer)

        return ctypes.string_at(buffer, session.run(action) or 0)

    def write(self, path: str, data: bytes, offset: int, info: Any) -> int:
        """pwrite(2), or write(2) to the end of a file opened for appending."""
        handle = self._handles[info.fh]
        session = handle.session

        def action() -> int:
            pointer = session.pointer(handle)
            start = offset
            if info.flags & os.O_APPEND:
                found = Stat()
                session.call("nfs_fstat64", pointer, ctypes.byref(found))
                start = found.size
            handle.dirty = True
            where = (ctypes.c_uint64(start), ctypes.c_uint64(len(data)))
            return session.call("nfs_pwrite", pointer, *where, data)

        return session.run(action) or 0

    def flush(self, path: str, info: Any) -> int:
        """close(2): what was written is on the server's disk when it returns, as with the kernel's client."""
        if self._handles[info.fh].dirty:
            self.fsync(path, 0, info)
        return 0

    def fsync(self, path: str, datasync: int, info: Any) -> int:
        """fsync(2)."""
        handle = self._handles[info.fh]
        session = handle.session
        session.run(lambda: session.call("nfs_fsync", session.pointer(handle)))
        handle.dirty = False
        return 0

    def release(self, path: str, info: Any) -> int:
        """Forget an open file; one of a connection that is gone is closed already."""
        with self._table:
            handle = self._handles.pop(info.fh)
        session = handle.session
        with session.lock:
            if session.context is not None and handle.generation == session.generation:
                session.lib.nfs_close(session.context, handle.pointer)
        return 0

    def truncate(self, path: str, length: int, info: Any = None) -> int:
        """truncate(2) or ftruncate(2)."""
        size = ctypes.c_uint64(length)
        if info is None:
            return self._call("nfs_truncate", path.encode("latin-1"), size)
        handle = self._handles[info.fh]
        session = handle.session
        return session.run(lambda: session.call("nfs_ftruncate", session.pointer(handle), size)) or 0

    def rename(self, old: str, new: str) -> int:
        """rename(2); open files follow their new names."""
        source, target = old.encode("latin-1"), new.encode("latin-1")
        self._call("nfs_rename", source, target, repeated_error=errno.ENOENT)
        with self._table:
            for handle in self._handles.values():
                if handle.path == source or handle.path.startswith(source + b"/"):
                    handle.path = target + handle.path[len(source) :]
        return 0

    def unlink(self, path: str) -> int:
        """unlink(2)."""
        return self._call("nfs_unlink", path.encode("latin-1"), repeated_error=errno.ENOENT)

    def mkdir(self, path: str, mode: int) -> int:
        """mkdir(2)."""
        return self._call("nfs_mkdir2", path.encode("latin-1"), stat.S_IMODE(mode), repeated_error=errno.EEXIST)

    def rmdir(self, path: str) -> int:
        """rmdir(2)."""
        return self._call("nfs_rmdir", path.encode("latin-1"), repeated_error=errno.ENOENT)

    def symlink(self, path: str, text: str) -> int:
        """symlink(2): `path` comes to say `text`."""
        words = (text.encode("latin-1"), path.encode("latin-1"))
        return self._call("nfs_symlink", *words, repeated_error=errno.EEXIST)

    def readlink(self, path: str) -> str:
        """readlink(2)."""
        buffer = ctypes.create_string_buffer(4097)
        self._call("nfs_readlink", path.encode("latin-1"), buffer, len(buffer) - 1)
        # libnfs 5.0 reads past the end of a text whose length is a multiple of four.
        return buffer.value[: self._stat(path).size].decode("latin-1")

    def link(self, path: str, existing: str) -> int:
        """link(2): `path` becomes another name of `existing`."""
        words = (existing.encode("latin-1"), path.encode("latin-1"))
        return self._call("nfs_link", *words, repeated_error=errno.EEXIST)

    def chmod(self, path: str, mode: int) -> int:
        """chmod(2)."""
        return self._call("nfs_chmod", path.encode("latin-1"), stat.S_IMODE(mode))

    def chown(self, path: str, uid: int, gid: int) -> int:
        """lchown(2); -1 leaves a half as it is.

        libnfs 5.0 changes the directory that holds what it is asked to change, so it is asked for something
        inside the path.
        """
        now = self._stat(path) if -1 in {uid, gid} else None
        owner, group = (now.uid if now and uid == -1 else uid), (now.gid if now and gid == -1 else gid)
        return self._call("nfs_lchown", path.rstrip("/").encode("latin-1") + b"/-", owner, group)

    def utimens(self, path: str, times: tuple[int, int] | None) -> int:
        """utimensat(2); `times` are nanoseconds, or its special values."""
        now = time.time_ns()
        if times is None or times == (UTIME_NOW, UTIME_NOW):
            return self._call("nfs_lutimes", path.encode("latin-1"), None)
        found = self._stat(path) if UTIME_OMIT in times else Stat()
        kept = (found.atime * 10**9 + found.atime_ns, found.mtime * 10**9 + found.mtime_ns)
        chosen = [{UTIME_NOW: now, UTIME_OMIT: kept[at]}.get(value, value) for at, value in enumerate(times)]
        pair = (Timeval * 2)(*[Timeval(value // 10**9, value % 10**9 // 1000) for value in chosen])
        return self._call("nfs_lutimes", path.encode("latin-1"), pair)

    def statfs(self, path: str) -> dict[str, int]:
        """statvfs(3)."""
        result = Statvfs()
        self._call("nfs_statvfs64", path.encode("latin-1"), ctypes.byref(result))
        return {str(name): getattr(result, name) for name, *_ in Statvfs._fields_}


@dataclass
class Request:
    """A mount as asked for on the command line."""

    source: str
    server: str
    export: str
    target: str
    retry_s: float = RETRY_DEFAULT_MIN * 60.0
    fuse: dict[str, bool] = field(default_factory=dict)
    fake: bool = False


def parse_request(words: list[str]) -> Request:
    """Return the mount that mount(8)'s `words` ask for.

    Raises ValueError for a source that is no server:/path, or a version of NFS other than 4.
    """
    parser = argparse.ArgumentParser(prog="mount.nfs4")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("-o", dest="options", default=[], action="append")
    parser.add_argument("-f", dest="fake", action="store_true")
    for ignored in ("-s", "-n", "-v"):
        parser.add_argument(ignored, action="store_true")
    for generic in ("-r", "-w"):
        parser.add_argument(generic, dest="access", action="store_const", const=f"{generic}o")
    arguments = parser.parse_args(words)
    server, separator, export = arguments.source.partition(":")
    if not separator or not server or not export.startswith("/"):
        raise ValueError(f"{arguments.source} is not server:/path")
    request = Request(arguments.source, server, export, arguments.target, fake=arguments.fake)
    for option in ",".join(arguments.options).split(","):
        key, _, value = option.partition("=")
        if key in GENERIC_OPTIONS:
            request.fuse[key] = True
        elif key in {"vers", "nfsvers"} and not re.fullmatch(r"4(\.[012])?", value):
            raise ValueError(f"NFS version {value}: only version 4 is spoken here")
        elif key == "retry":
            request.retry_s = float(value) * 60.0
    if arguments.access == "-ro":
        request.fuse["ro"] = True
    return request


def main() -> int:
    """Mount and serve; the exit status is mount(8)'s."""
    try:
        request = parse_request(sys.argv[1:])
    except ValueError as error:
        print(f"mount.nfs4: {error}", file=sys.stderr)
        return 1
    if request.fake:
        return 0
    import fusepy  # type: ignore[import-not-found]

    lib = load_libnfs()

    server = Server(request.server, request.export)
    mounter = Session(lib, server, 0, 0)

    def session(uid: int, gid: int) -> Session:
        return mounter if (uid, gid) == (0, 0) else Session(lib, server, uid, gid)

    try:
        mounter.run(lambda: None, limit_s=request.retry_s)
    except OSError as error:
        print(f"mount.nfs4: {request.source}: {error.strerror}", file=sys.stderr)
        return MOUNT_FAILED
    try:
        fusepy.FUSE(
            NfsFileSystem(session, fusepy.fuse_get_context),
            request.target,
            raw_fi=True,
            encoding="latin-1",
            fsname=request.source,
            subtype="nfs4",
            allow_other=True,
            default_permissions=True,
            nonempty=True,
            use_ino=True,
            big_writes=True,
            max_write=131072,
            max_read=131072,
            attr_timeout=1,
            entry_timeout=1,
            negative_timeout=0,
            **request.fuse,
        )
    except RuntimeError as error:
        print(f"mount.nfs4: {request.target}: FUSE failed ({error})", file=sys.stderr)
        return MOUNT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
