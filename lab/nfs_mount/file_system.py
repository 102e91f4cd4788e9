"""The file system that FUSE shows: each operation as calls to libnfs."""

import ctypes
import errno
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable
from typing import Any

from .caller import Identity, groups_of
from .libnfs import Stat, Statvfs, Timeval
from .session import Handle, Session

UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
"""Nanoseconds that utimensat(2) gives instead of a time."""


class NfsFileSystem:
    """FUSE operations, by the names that fusepy knows; paths are Latin-1 text, that is, bytes as they are."""

    use_ns = True
    flag_utime_omit_ok = 1

    def __init__(self, session: Callable[[Identity], Session], caller: Callable[[], tuple[int, int, int]]) -> None:
        """Serve calls by `session` (a new one for an identity); `caller` gives the calling uid, gid and thread."""
        self._new_session, self._caller = session, caller
        self._sessions: dict[Identity, Session] = {}
        self._handles: dict[int, Handle] = {}
        self._numbers = itertools.count(1)
        self._table = threading.Lock()

    def __call__(self, operation: str, *arguments: Any) -> Any:
        """Run the operation called `operation` (fusepy's way in)."""
        return getattr(self, operation)(*arguments)

    def _session(self) -> Session:
        uid, gid, thread = self._caller()
        identity = (uid, gid, groups_of(thread) if uid else ())
        with self._table:
            if identity not in self._sessions:
                self._sessions[identity] = self._new_session(identity)
            return self._sessions[identity]

    def _call(self, name: str, *arguments: object, repeated_error: int = 0) -> int:
        session = self._session()
        return session.run(lambda: session.call(name, *arguments), repeated_error=repeated_error) or 0

    def _stat(self, path: str) -> Stat:
        result = Stat()
        self._call("nfs_lstat64", path.encode("latin-1"), ctypes.byref(result))
        return result

    def getattr(self, path: str, info: Any = None) -> dict[str, int]:
        """lstat(2)."""
        status = self._stat(path)
        return {
            **{f"st_{name}": getattr(status, name) for name in ("ino", "mode", "nlink", "uid", "gid", "rdev", "size")},
            **{
                f"st_{name}": getattr(status, name) * 10**9 + getattr(status, f"{name}_ns")
                for name in ("atime", "mtime", "ctime")
            },
            "st_blocks": (status.used + 511) // 512,
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
        """open(2) of a file that the kernel has looked up.

        If another node removed the file since then, ESTALE makes the kernel look it up again, and create it if the
        caller asks for that. The kernel's own NFS client does the same (EOPENSTALE); ENOENT would reach the caller.
        """
        session, flags = self._session(), info.flags & (os.O_ACCMODE | os.O_SYNC)
        name = path.encode("latin-1")
        try:
            return self._opened(info, session, name, flags, lambda: session.open(name, flags))
        except FileNotFoundError as error:
            raise OSError(errno.ESTALE, f"{path} was removed") from error

    def create(self, path: str, mode: int, info: Any) -> int:
        """open(2) with O_CREAT.

        libnfs always creates exclusively and puts a random number into the times.
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
        with session.turn():
            pointer = session.run(action)
            if pointer is None:
                raise OSError(errno.EIO, "no handle")
            info.fh = next(self._numbers)
            with self._table:
                self._handles[info.fh] = Handle(session, path, flags, pointer, session.generation)
        # The server decides where appended data goes, so the kernel must not cache its pages.
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
        start = None if info.flags & os.O_APPEND else offset

        def action() -> int:
            nonlocal start
            pointer = session.pointer(handle)
            # The end of the file as it was at first: a write that was done and not answered is done again in its place.
            if start is None:
                status = Stat()
                session.call("nfs_fstat64", pointer, ctypes.byref(status))
                start = status.size
            handle.dirty = True
            where = (ctypes.c_uint64(start), ctypes.c_uint64(len(data)))
            return session.call("nfs_pwrite", pointer, *where, data)

        return session.run(action) or 0

    def flush(self, path: str, info: Any) -> int:
        """close(2): written data is on the server's disk when it returns, as with the kernel's client."""
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
        with session.turn():
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
        arguments = (text.encode("latin-1"), path.encode("latin-1"))
        return self._call("nfs_symlink", *arguments, repeated_error=errno.EEXIST)

    def readlink(self, path: str) -> str:
        """readlink(2)."""
        buffer = ctypes.create_string_buffer(4097)
        self._call("nfs_readlink", path.encode("latin-1"), buffer, len(buffer) - 1)
        # libnfs 5.0 reads past the end of a text whose length is a multiple of four.
        return buffer.value[: self._stat(path).size].decode("latin-1")

    def link(self, path: str, existing: str) -> int:
        """link(2): `path` becomes another name of `existing`."""
        paths = (existing.encode("latin-1"), path.encode("latin-1"))
        return self._call("nfs_link", *paths, repeated_error=errno.EEXIST)

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
        status = self._stat(path) if UTIME_OMIT in times else Stat()
        kept = (status.atime * 10**9 + status.atime_ns, status.mtime * 10**9 + status.mtime_ns)
        chosen = [{UTIME_NOW: now, UTIME_OMIT: kept[index]}.get(value, value) for index, value in enumerate(times)]
        pair = (Timeval * 2)(*[Timeval(value // 10**9, value % 10**9 // 1000) for value in chosen])
        return self._call("nfs_lutimes", path.encode("latin-1"), pair)

    def statfs(self, path: str) -> dict[str, int]:
        """statvfs(3)."""
        result = Statvfs()
        self._call("nfs_statvfs64", path.encode("latin-1"), ctypes.byref(result))
        return {str(name): getattr(result, name) for name, *_ in Statvfs._fields_}
