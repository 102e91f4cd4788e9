"""The only way for root to open, create and change files.

Paths are opened as safe_path.py says. A file appears whole: it is written beside its path and renamed.

Programs import this module at each start, so it imports no module that takes long and that most of them do not use.

Functions that read return None or nothing for a path that does not exist. All functions raise Failure for a path that
another account can change, and OSError for other errors.

A new file is on the disk before it has its name, so that a power cut leaves no empty one. A step writes many files and
puts all of them on the disk at its end instead (`sync_at_end`): until then the stack does not count the step as done.
"""

import errno
import os
import posixpath
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from components.node import safe_path
from components.node.failure import Failure
from components.node.log import note
from components.node.passwd import group_named, user_named, user_with
from components.node.safe_path import ABSENT, FOLDER, ROOT, changed_by_others, open_folder, open_place
from components.node.safe_path import on_disk as on_disk

# With `sync_at_end`: a folder of each file system that changed, by device. None: each file is put on the disk at once.
_unwritten: dict[int, int] | None = None
# Where programs that a step calls, such as dpkg and useradd, write.
_ALSO_WRITTEN = ("/", "/etc", "/opt", "/usr", "/usr/local", "/var", "/var/lib")

_TRIES = 10  # to remove a folder that another process changes
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class File(NamedTuple):
    """A file to write: its path, text, mode, and the names or numbers of its owner and group.

    The text gets a final newline.
    """

    path: str
    text: str
    mode: int = 0o644
    owner: str | int = "root"
    group: str | int = "root"


def write(path: str, text: str, mode: int = 0o644, owner: str = "root", group: str = "") -> bool:
    """Write one file, like `write_all`. `group`: default: the owner's name."""
    return write_all([File(path, text, mode, owner, group or owner)])


def write_all(wanted: Sequence[File]) -> bool:
    """Make files as they should be; return whether a text changed. Missing folders are made.

    A link where a file should be is replaced and never followed. Others cannot read a file before it has its mode.
    """
    changed = False
    for file in wanted:
        with open_place(file.path, make=True) as place:
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
            descriptor = os.open(on_disk(path), ROOT)
            folders.setdefault(os.fstat(descriptor).st_dev, descriptor)
    for descriptor in folders.values():
        sync_file_system(descriptor)


def _sync_folder(place: Path) -> None:
    descriptor = os.open(place.parent, ROOT)
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
        open_place(path) as place,
        os.fdopen(os.open(place, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as stream,
    ):
        stream.write(_ended(text).encode("utf-8", "surrogateescape"))
    return True


def read(path: str, most: int = 2**24) -> str | None:
    """Return the text of a file, at most a number of bytes; None if there is no plain file."""
    with suppress(*ABSENT), open_place(path) as place:
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
    for _ in range(safe_path.MOST_LINKS):
        try:
            with open_place(path) as place:
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
    with suppress(*ABSENT), open_place(path) as place:
        return place.lstat()
    return None


def age_of(path: str) -> float | None:
    """Return the seconds since a path was last changed; None if it does not exist, or if that is in the future."""
    state = _state(path)
    age = -1 if state is None else time.time() - state.st_mtime
    return age if age >= 0 else None


def names_in(path: str) -> list[str]:
    """Return the names in a folder, sorted; none if there is no folder."""
    if not is_folder(path):
        return []
    with open_folder(path, closed=False) as folder:
        return sorted(entry.name for entry in folder.iterdir())


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
    with open_folder(path) as above:
        for entry in sorted(os.scandir(above), key=lambda entry: entry.name):
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            texts = parts.setdefault(entry.name, {})
            with suppress(FileNotFoundError):  # another step has removed it meanwhile
                safe_path.require_closed(entry.stat(follow_symlinks=False), f"{path}/{entry.name}")
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
    with open_folder(path, closed=False) as folder:
        there = str(folder.readlink())
    return there if safe_path.root == "/" else there.removeprefix(safe_path.root) or "/"


def is_newer(path: str, other: str) -> bool:
    """Return whether a path exists and changed later than another one, or the other one does not exist."""
    state, other_state = _state(path), _state(other)
    return state is not None and (other_state is None or state.st_mtime_ns > other_state.st_mtime_ns)


def is_closed(path: str) -> bool:
    """Return whether a path is a folder that root alone can change."""
    state = _state(path)
    return state is not None and stat.S_ISDIR(state.st_mode) and not changed_by_others(state)


def make_folder(path: str, mode: int = 0o755, owner: str | int = "root", group: str | int = "") -> None:
    """Make a folder, or give an existing one this mode and owner. The folder above must be root's.

    owner, group   names or numbers; the group is by default the owner's name

    Raises Failure if a link or a file is in its place.
    """
    with open_place(path, make=True) as place:
        with suppress(FileExistsError):
            place.mkdir(0o700)
        try:
            descriptor = os.open(place, FOLDER)
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


def set_mode(path: str, mode: int) -> None:
    """Set the mode of a plain file."""
    descriptor = open_to_read(path)
    if descriptor is not None:
        os.fchmod(descriptor, mode)
        os.close(descriptor)


def remove(path: str) -> bool:
    """Remove a file or a link, and return whether there was one."""
    with suppress(*ABSENT), open_place(path) as place:
        return _unlink(place)
    return False


def remove_if_empty(path: str) -> bool:
    """Remove an empty folder, and return whether it did. The folder above may be one like /tmp."""
    try:
        with open_place(path, closed=False) as place:
            place.rmdir()
    except OSError:
        return False
    return True


def remove_folder(path: str) -> None:
    """Remove a folder with everything in it, or a link or file in its place. No link is followed."""
    if exists(path):
        with open_place(path) as place:
            remove_any(place)


def remove_any(place: Path) -> None:
    """Remove a file or a folder with all that is in it, also if another process removes something meanwhile."""
    import shutil

    for left in reversed(range(_TRIES)):
        if place.is_symlink() or not place.is_dir():
            _unlink(place)
            return
        try:
            shutil.rmtree(place)
        except FileNotFoundError:
            if not left:
                raise


def rename(path: str, to: str) -> None:
    """Rename a file or folder; another file at the new path is replaced."""
    with open_place(path) as place, open_place(to, make=True) as new_place:
        place.rename(new_place)
        _sync_folder(new_place)


def link(path: str, target: str) -> bool:
    """Make a symbolic link in place of what is there; return whether it changed."""
    with open_place(path, make=True) as place:
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
        with suppress(*ABSENT), open_place(f"{folder}/.tailrack-room") as place:
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
    with suppress(*ABSENT), open_place(path) as place:
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
    with open_place(path, make=True) as place:
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def open_to_write(path: str, mode: int = 0o600) -> int:
    """Open an empty file for writing. A link in its place is replaced."""
    with open_place(path, make=True) as place:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            descriptor = os.open(place, flags, mode)
        except OSError:
            _unlink(place)
            descriptor = os.open(place, flags | os.O_EXCL, mode)
        os.fchmod(descriptor, mode)
        return descriptor


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
