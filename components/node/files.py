"""The only way for root to open, create and change files.

An account can replace anything in its own folder by a link. So the folder of a path is opened part by part, by
descriptor: every folder on the way must belong to root, a link is followed only where root alone could have made it,
and a file is opened only in a folder that root alone can change. From then on the path begins with the descriptor
(/proc/self/fd). A file appears whole: it is written beside its path and renamed.

Programs import this module at each start, so it imports no module that takes long and that most of them do not use.

Functions that read return None or nothing for a path that does not exist. All functions raise Failure for a path that
another account can change, and OSError for other errors.

A new file is on the disk before it has its name, so that a power cut leaves no empty one. A step writes many files and
puts all of them on the disk at its end instead (`sync_at_end`): until then the stack does not count the step as done.
"""

from __future__ import annotations

import errno
import grp
import os
import posixpath
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from components.node.failure import Failure
from components.node.log import note
from components.node.passwd import group_named, user_named, user_with

# The folder that stands for the whole machine. Tests set another one.
root = "/"

# With `sync_at_end`: a folder of each file system that changed, by device. None: each file is put on the disk at once.
_unwritten: dict[int, int] | None = None
# Where programs that a step calls, such as dpkg and useradd, write.
_ALSO_WRITTEN = ("/", "/etc", "/opt", "/usr", "/usr/local", "/var", "/var/lib")

_ABSENT = (FileNotFoundError, NotADirectoryError)
_MOST_LINKS = 40
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FOLDER = _ROOT | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class File(NamedTuple):
    """A file to write: its path, text, mode, and the names or numbers of its owner and group.

    The text gets a final newline.
    """

    path: str
    text: str
    mode: int = 0o644
    owner: str | int = "root"
    group: str | int = "root"


class Part(NamedTuple):
    """A part of a path: its path from the root, its type and permissions, and its owner (0 is root)."""

    path: str
    type: int
    mode: int
    uid: int


def write(path: str, text: str, mode: int = 0o644, owner: str = "root", group: str = "") -> bool:
    """Write one file, like `write_all`. `group`: default: the owner's name."""
    return write_all([File(path, text, mode, owner, group or owner)])


def write_all(wanted: Sequence[File]) -> bool:
    """Make files as they should be; return whether a text changed. Missing folders are made.

    A link where a file should be is replaced and never followed. Others cannot read a file before it has its mode.
    """
    changed = False
    for file in wanted:
        with _place(file.path, make=True) as place:
            changed = _write(place, file) or changed
    return changed


def _write(place: Path, file: File) -> bool:
    data = _ended(file.text).encode("utf-8", "surrogateescape")
    uid, gid = _uid(file.owner), _gid(file.group)
    descriptor = _open_plain(place)
    if descriptor is not None:
        with os.fdopen(descriptor, "rb") as stream:
            if os.fstat(descriptor).st_size == len(data) and stream.read() == data:
                _set_owner(descriptor, uid, gid, file.mode)
                return False
    temporary = _beside(place)
    try:
        with os.fdopen(os.open(temporary, _NEW, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            _set_owner(stream.fileno(), uid, gid, file.mode)
            if _unwritten is None:
                os.fsync(stream.fileno())
        temporary.rename(place)
        _sync_folder(place)
    except OSError as error:
        _unlink(temporary)
        raise Failure(
            f"cannot write {file.path}: {error.strerror}",
            f"make room or remove what is in the way (df -h {PurePosixPath(file.path).parent}), then run up again",
        ) from error
    note(f"wrote {file.path}")
    return True


def sync_at_end() -> None:
    """From now on, put files on the disk with `sync` instead of one by one."""
    global _unwritten
    _unwritten = {}


@contextmanager
def written_at_once() -> Iterator[None]:
    """Put files on the disk one by one here, also after `sync_at_end`."""
    global _unwritten
    before, _unwritten = _unwritten, None
    try:
        yield
    finally:
        _unwritten = before


def sync() -> None:
    """Put on the disk everything that was written since `sync_at_end`. Raises OSError, for a full disk for example."""
    from components.node.install import sync_file_system

    folders = dict(_unwritten or {})
    for path in _ALSO_WRITTEN:
        with suppress(FileNotFoundError):
            descriptor = os.open(on_disk(path), _ROOT)
            folders.setdefault(os.fstat(descriptor).st_dev, descriptor)
    for descriptor in folders.values():
        sync_file_system(descriptor)


def _sync_folder(place: Path) -> None:
    descriptor = os.open(place.parent, _ROOT)
    if _unwritten is not None and (device := os.fstat(descriptor).st_dev) not in _unwritten:
        _unwritten[device] = descriptor
        return
    if _unwritten is None:
        os.fsync(descriptor)
    os.close(descriptor)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _set_owner(descriptor: int, uid: int, gid: int, mode: int) -> None:
    state = os.fstat(descriptor)
    if (state.st_uid, state.st_gid) != (uid, gid):
        os.fchown(descriptor, uid, gid)
    os.fchmod(descriptor, mode)


def rewrite(path: str, text: str) -> bool:
    """Change the text of a file, which keeps its mode, owner and group; return whether it changed.

    A file that is a mount, such as /etc/hosts in a container, cannot be replaced, and is written in place.
    """
    original = followed(path)
    state = _state(original)
    if state is None:
        return write(path, text)
    if read(original) == _ended(text):
        return False
    try:
        return write_all([File(path, text, stat.S_IMODE(state.st_mode), state.st_uid, state.st_gid)])
    except Failure as failure:
        if not (isinstance(failure.__cause__, OSError) and failure.__cause__.errno == errno.EBUSY):
            raise
    with (
        _place(path) as place,
        os.fdopen(os.open(place, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as stream,
    ):
        stream.write(_ended(text).encode("utf-8", "surrogateescape"))
    return True


def read(path: str, most: int = 2**24) -> str | None:
    """Return the text of a file, at most a number of bytes; None if there is no plain file."""
    with suppress(*_ABSENT), _place(path) as place:
        return _text(place, most)
    return None


def _text(place: Path, most: int = 2**24) -> str | None:
    descriptor = _open_plain(place)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as stream:
        return stream.read(most).decode("utf-8", "surrogateescape")


def sha256(path: str) -> str:
    """Return the SHA-256 of a file in hexadecimal; empty if there is no plain file."""
    descriptor = open_to_read(path)
    if descriptor is None:
        return ""
    import hashlib

    digest = hashlib.sha256()
    with os.fdopen(descriptor, "rb") as stream:
        while part := stream.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def lines(path: str) -> list[str]:
    """Return the lines of a file; none if there is no plain file, or if it was written without any."""
    return (read(path) or "").removesuffix("\n").splitlines()


def followed(path: str) -> str:
    """Return the path that a link of the system, such as /etc/resolv.conf, leads to; or the path if it is none.

    A link in a folder of another account is not followed.
    """
    for _ in range(_MOST_LINKS):
        try:
            with _place(path) as place:
                target = str(place.readlink())
        except (OSError, Failure):
            return path
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return path


def add_line(path: str, line: str, mode: int = 0o644) -> bool:
    """Add a line to a file that lacks it; return whether it was added."""
    there = lines(path)
    if line in there:
        return False
    return write(path, "\n".join([*there, line]), mode)


def remove_lines(path: str, unwanted: Callable[[str], bool]) -> None:
    """Remove lines from a file, which keeps its mode, owner and group."""
    state, before = _state(path), lines(path)
    after = [line for line in before if not unwanted(line)]
    if state and after != before:
        write_all([File(path, "\n".join(after), stat.S_IMODE(state.st_mode), state.st_uid, state.st_gid)])


def exists(path: str) -> bool:
    """Return whether a path exists. A link exists even if its target does not."""
    return _state(path) is not None


def is_folder(path: str) -> bool:
    """Return whether a path is a folder and no link."""
    state = _state(path)
    return state is not None and stat.S_ISDIR(state.st_mode)


def is_plain(path: str) -> bool:
    """Return whether a path is a plain file and no link."""
    state = _state(path)
    return state is not None and stat.S_ISREG(state.st_mode)


def _state(path: str) -> os.stat_result | None:
    with suppress(*_ABSENT), _place(path) as place:
        return place.lstat()
    return None


def lstat(path: str) -> os.stat_result | None:
    """Return the state of a path, and None if it does not exist. Nothing is opened.

    Anyone may own the folders above. A link at the end is not followed.
    """
    with suppress(*_ABSENT):
        return Path(on_disk(path)).lstat()
    return None


def kind_of(path: str) -> int:
    """Return the type of a path (see lstat), such as stat.S_IFDIR, and 0 if it does not exist."""
    state = lstat(path)
    return stat.S_IFMT(state.st_mode) if state else 0


def parts_of(path: str) -> list[Part]:
    """Return the parts of a path that exist, from the top. No link is followed, and anyone may own the parts."""
    parts: list[Part] = []
    descriptor = os.open(root, _ROOT)
    try:
        for place in [*reversed(PurePosixPath(path).parents), PurePosixPath(path)][1:]:
            if (state := _state_in(descriptor, place.name)) is None:
                break
            uid = 0 if state.st_uid == os.geteuid() else state.st_uid
            parts.append(Part(str(place), stat.S_IFMT(state.st_mode), stat.S_IMODE(state.st_mode), uid))
            if not stat.S_ISDIR(state.st_mode):
                break
            descriptor = _step(descriptor, place.name, _FOLDER)
    finally:
        os.close(descriptor)
    return parts


def age_of(path: str) -> float | None:
    """Return the seconds since a path was last changed; None if it does not exist, or if that is in the future."""
    state = _state(path)
    age = -1 if state is None else time.time() - state.st_mtime
    return age if age >= 0 else None


def names_in(path: str) -> list[str]:
    """Return the names in a folder, sorted; none if there is no folder."""
    if not is_folder(path):
        return []
    with _folder(path, closed=False) as folder:
        return sorted(entry.name for entry in folder.iterdir())


def names_in_any(path: str) -> list[str]:
    """Return the names in a folder of any account, sorted."""
    descriptor = os.open(on_disk(path), _FOLDER)
    try:
        return sorted(entry.name for entry in os.scandir(descriptor))
    finally:
        os.close(descriptor)


def folders_in(path: str) -> dict[str, tuple[int, int]]:
    """Return the uid and gid of each folder in a folder of root's, by name, sorted. The one above may be like /tmp."""
    states = {}
    with suppress(*_ABSENT), _folder(path, closed=False) as folder:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                states[entry.name] = (state.st_uid, state.st_gid)
    return states


def read_in_folders(path: str, name: str) -> dict[str, str]:
    """Return the texts of the plain files `<path>/<folder>/<name>`, by folder, sorted. All folders must be root's."""
    return {folder: part[name] for folder, part in read_parts(path, [name]).items() if name in part}


def read_parts(path: str, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the texts of files with these names in each folder of a folder: by folder, sorted, then by name.

    All folders must be root's. It is fast for thousands of folders: it opens the path once.
    """
    parts: dict[str, dict[str, str]] = {}
    if not is_folder(path):
        return parts
    with _folder(path) as above:
        for entry in sorted(os.scandir(above), key=lambda entry: entry.name):
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            texts = parts.setdefault(entry.name, {})
            with suppress(FileNotFoundError):  # another step has removed it meanwhile
                _require_closed(entry.stat(follow_symlinks=False), f"{path}/{entry.name}")
                texts |= {name: text for name in names if (text := _text(Path(entry.path, name))) is not None}
    return parts


def owner_of(path: str) -> str:
    """Return the name of a path's owner, or its uid if it has no name; empty if the path does not exist."""
    state = _state(path)
    if state is None:
        return ""
    if state.st_uid == os.geteuid():
        return "root"
    user = user_with(state.st_uid)
    return user.pw_name if user else str(state.st_uid)


def real_path(path: str) -> str:
    """Return the path of a folder without links."""
    with _folder(path, closed=False) as folder:
        there = str(folder.readlink())
    return there if root == "/" else there.removeprefix(root) or "/"


def is_newer(path: str, other: str) -> bool:
    """Return whether a path exists and changed later than another one, or the other one does not exist."""
    state, other_state = _state(path), _state(other)
    return state is not None and (other_state is None or state.st_mtime_ns > other_state.st_mtime_ns)


def is_closed(path: str) -> bool:
    """Return whether a path is a folder that root alone can change."""
    state = _state(path)
    return state is not None and stat.S_ISDIR(state.st_mode) and not _changed_by_others(state)


def make_folder(path: str, mode: int = 0o755, owner: str | int = "root", group: str | int = "") -> None:
    """Make a folder, or give an existing one this mode and owner. The folder above must be root's.

    owner, group   names or numbers; the group is by default the owner's name

    Raises Failure if a link or a file is in its place.
    """
    with _place(path, make=True) as place:
        with suppress(FileExistsError):
            place.mkdir(0o700)
        try:
            descriptor = os.open(place, _FOLDER)
        except OSError as error:
            raise Failure(
                f"{path} is a link or a file and must be a folder; nothing was changed through it",
                f"find out who made it ('ls -ld {path}'), remove it, then run up again",
            ) from error
        try:
            _set_owner(descriptor, _uid(owner), _gid(group or owner), mode)
        finally:
            os.close(descriptor)
        _sync_folder(place)


def make_new_folder(path: str, mode: int = 0o755) -> None:
    """Make a folder of root's where nothing is yet. The folder above may be one like /tmp, where others may add theirs.

    Raises FileExistsError if something is there.
    """
    with _place(path, closed=False) as place:
        state = place.parent.stat()
        if _changed_by_others(state) and not state.st_mode & stat.S_ISVTX:
            raise Failure(f"another account can replace {path}", f"run 'namei -l {path}' to find it")
        place.mkdir(mode)


def set_mode(path: str, mode: int) -> None:
    """Set the mode of a plain file."""
    descriptor = open_to_read(path)
    if descriptor is not None:
        os.fchmod(descriptor, mode)
        os.close(descriptor)


def remove(path: str) -> bool:
    """Remove a file or a link, and return whether there was one."""
    with suppress(*_ABSENT), _place(path) as place:
        return _unlink(place)
    return False


def remove_if_empty(path: str) -> bool:
    """Remove an empty folder, and return whether it did. The folder above may be one like /tmp."""
    try:
        with _place(path, closed=False) as place:
            place.rmdir()
    except OSError:
        return False
    return True


def remove_folder(path: str) -> None:
    """Remove a folder with everything in it, or a link or file in its place. No link is followed."""
    with suppress(*_ABSENT), _place(path) as place:
        _remove_any(place)


def empty_folder(path: str) -> None:
    """Remove everything in a folder of any account, and keep the folder. A link in its place is not followed."""
    with suppress(*_ABSENT), _place(path) as place:
        descriptor = os.open(place, _FOLDER)
        try:
            for entry in [*_by_descriptor(descriptor).iterdir()]:
                with suppress(FileNotFoundError):
                    _remove_any(entry)
        finally:
            os.close(descriptor)


def _remove_any(place: Path) -> None:
    import shutil

    if stat.S_ISDIR(place.lstat().st_mode):
        shutil.rmtree(place)
    else:
        _unlink(place)


def rename(path: str, to: str) -> None:
    """Rename a file or folder; another file at the new path is replaced."""
    with _place(path) as place, _place(to, make=True) as new_place:
        place.rename(new_place)
        _sync_folder(new_place)


def link(path: str, target: str) -> bool:
    """Make a symbolic link in place of what is there; return whether it changed."""
    with _place(path, make=True) as place:
        with suppress(OSError):
            if str(place.readlink()) == target:
                return False
        temporary = _beside(place)
        temporary.symlink_to(target)
        temporary.rename(place)
        return True


def room_error(folder: str, size: int = 65536) -> str:
    """Return the error of writing a file in a folder; empty if there is room, or no such folder."""
    try:
        with suppress(*_ABSENT), _place(f"{folder}/.tailrack-room") as place:
            _unlink(place)
            try:
                with os.fdopen(os.open(place, _NEW, 0o600), "wb") as stream:
                    stream.write(bytes(size))
            finally:
                _unlink(place)
    except OSError as error:
        return str(error.strerror)
    return ""


def open_to_read(path: str) -> int | None:
    """Open a plain file; return None for anything else."""
    with suppress(*_ABSENT), _place(path) as place:
        return _open_plain(place)
    return None


def read_process(pid: str, name: str) -> str:
    """Return the text of a process's file in /proc; empty if it is gone.

    The folder there belongs to the process's account, and only the kernel can change it.
    """
    try:
        return Path(on_disk(f"/proc/{int(pid)}/{name}")).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def open_to_lock(path: str) -> int:
    """Open a file that only root can open, and make it if it is missing. No child process inherits the descriptor."""
    with _place(path, make=True) as place:
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def open_to_write(path: str, mode: int = 0o600) -> int:
    """Open an empty file for writing. A link in its place is replaced."""
    with _place(path, make=True) as place:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(place, flags, mode)
        except OSError:
            _unlink(place)
            descriptor = os.open(place, flags | os.O_EXCL, mode)
        os.fchmod(descriptor, mode)
        return descriptor


def on_disk(path: str) -> str:
    """Return a path as other programs find it. It differs only in tests."""
    return path if root == "/" else f"{root}{path}"


# Opening by descriptor.


def random_name() -> str:
    """Return a name that no one can guess."""
    return os.urandom(8).hex()


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}.{random_name()}")


def _unlink(place: Path) -> bool:
    with suppress(FileNotFoundError):
        place.unlink()
        return True
    return False


def _open_plain(place: Path) -> int | None:
    """Open a plain file to read. Return None for anything else, such as a link, or a FIFO that would block."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _by_descriptor(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")


@contextmanager
def _folder(path: str, *, make: bool = False, closed: bool = True) -> Iterator[Path]:
    """Open a folder of root's, and give its path by descriptor. `closed`: refuse it if others can change it."""
    descriptor = _open_folders(PurePosixPath(path), make=make)
    try:
        if closed:
            _require_closed(os.fstat(descriptor), path)
        yield _by_descriptor(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _place(path: str, *, make: bool = False, closed: bool = True) -> Iterator[Path]:
    """Open the folder of a path like `_folder`, and give the path in it."""
    pure = PurePosixPath(path)
    with _folder(str(pure.parent), make=make, closed=closed) as folder:
        yield folder / pure.name


def _open_folders(path: PurePosixPath, *, make: bool) -> int:
    """Open a folder, one part of its path after the other. Every folder on the way belongs to root."""
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{path} must be an absolute path without '..'")
    left = list(path.parts[1:])
    descriptor = os.open(root, _ROOT)
    links = 0
    try:
        while left:
            name = left.pop(0)
            state = _state_in(descriptor, name)
            if state is None and make:
                if _changed_by_others(os.fstat(descriptor)):
                    raise Failure(
                        f"another account can change a folder above {path}", f"run 'namei -l {path}' to find it"
                    )
                os.mkdir(name, 0o755, dir_fd=descriptor)
            elif state is not None and stat.S_ISLNK(state.st_mode):
                # /var/run is such a link.
                if _changed_by_others(os.fstat(descriptor)) or (links := links + 1) > _MOST_LINKS:
                    raise Failure(f"{path} leads through a link that another account can change")
                target = PurePosixPath(os.readlink(name, dir_fd=descriptor))
                if ".." in target.parts:
                    raise Failure(f"{path} leads through a link with '..'")
                left = [part for part in target.parts if part != "/"] + left
                if target.is_absolute():
                    descriptor = _step(descriptor, root, _ROOT)
                continue
            descriptor = _step(descriptor, name, _FOLDER)
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise Failure(f"{path} leads through a folder of another account", f"run 'namei -l {path}' to find it")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _step(descriptor: int, name: str, flags: int) -> int:
    after = os.open(name, flags, dir_fd=descriptor)
    os.close(descriptor)
    return after


def _state_in(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _require_closed(state: os.stat_result, path: str) -> None:
    if _changed_by_others(state):
        raise Failure(f"another account can change {path}", f"give it to root: see 'ls -ld {path}'")


def _changed_by_others(state: os.stat_result) -> bool:
    others = stat.S_IWOTH if state.st_gid in _groups_of_root() else _WRITABLE_BY_OTHERS
    return state.st_uid != os.geteuid() or bool(state.st_mode & others)


@cache
def _groups_of_root() -> frozenset[int]:
    """Return root's groups: Debian gives /usr/local to the group staff, and Ubuntu gives /var/log to syslog."""
    return frozenset({0, *(group.gr_gid for group in grp.getgrall() if group.gr_name in ("staff", "syslog"))})


def numbers_of(account: str) -> tuple[int, int]:
    """Return the uid and gid of an account and of the group with its name."""
    return _uid(account), _gid(account)


def _uid(owner: str | int) -> int:
    if isinstance(owner, int):
        return owner
    user = user_named(owner)
    if owner != "root" and user is None:
        raise Failure(f"this machine has no account {owner}")
    return user.pw_uid if user and owner != "root" else os.geteuid()


def _gid(group: str | int) -> int:
    if isinstance(group, int):
        return group
    found = group_named(group)
    if group != "root" and found is None:
        raise Failure(f"this machine has no group {group}")
    return found.gr_gid if found and group != "root" else os.getegid()
