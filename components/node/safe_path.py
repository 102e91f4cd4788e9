"""Open a folder of root's so that no other account leads root elsewhere.

An account can replace anything in its own folder by a link. So a folder is opened part by part, by descriptor: every
folder on the way must belong to root, a link is followed only where root alone could have made it, and a file is opened
only in a folder that root alone can change. From then on the path begins with the descriptor (/proc/self/fd).
"""

import grp
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath

from components.node.failure import Failure

# The folder that stands for the whole machine. Tests set another one.
root = "/"

ABSENT = (FileNotFoundError, NotADirectoryError)
ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FOLDER = ROOT | os.O_NOFOLLOW
MOST_LINKS = 40
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def on_disk(path: str) -> str:
    """Return a path as other programs find it. It differs only in tests."""
    return path if root == "/" else f"{root}{path}"


def by_descriptor(descriptor: int) -> Path:
    """Return the path that leads to an open folder, whatever has its name now."""
    return Path(f"/proc/self/fd/{descriptor}")


@contextmanager
def open_folder(path: str, *, make: bool = False, closed: bool = True) -> Iterator[Path]:
    """Open a folder of root's, and give its path by descriptor. `closed`: refuse it if others can change it."""
    descriptor = _open_folders(PurePosixPath(path), make=make)
    try:
        if closed:
            require_closed(os.fstat(descriptor), path)
        yield by_descriptor(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def open_place(path: str, *, make: bool = False, closed: bool = True) -> Iterator[Path]:
    """Open the folder of a path like `open_folder`, and give the path in it."""
    pure = PurePosixPath(path)
    with open_folder(str(pure.parent), make=make, closed=closed) as folder:
        yield folder / pure.name


def _open_folders(path: PurePosixPath, *, make: bool) -> int:
    """Open a folder, one part of its path after the other. Every folder on the way belongs to root."""
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{path} must be an absolute path without '..'")
    left = list(path.parts[1:])
    descriptor = os.open(root, ROOT)
    links = 0
    try:
        while left:
            name = left.pop(0)
            state = state_in(descriptor, name)
            if state is None and make:
                if changed_by_others(os.fstat(descriptor)):
                    raise Failure(
                        f"another account can change a folder above {path}", f"run 'namei -l {path}' to find it"
                    )
                os.mkdir(name, 0o755, dir_fd=descriptor)
            elif state is not None and stat.S_ISLNK(state.st_mode):
                # /var/run is such a link.
                if changed_by_others(os.fstat(descriptor)) or (links := links + 1) > MOST_LINKS:
                    raise Failure(f"{path} leads through a link that another account can change")
                target = PurePosixPath(os.readlink(name, dir_fd=descriptor))
                if ".." in target.parts:
                    raise Failure(f"{path} leads through a link with '..'")
                left = [part for part in target.parts if part != "/"] + left
                if target.is_absolute():
                    descriptor = step_into(descriptor, root, ROOT)
                continue
            descriptor = step_into(descriptor, name, FOLDER)
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise Failure(f"{path} leads through a folder of another account", f"run 'namei -l {path}' to find it")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def step_into(descriptor: int, name: str, flags: int) -> int:
    """Open a folder in an open one, which is closed. Raises OSError, and then closes none."""
    after = os.open(name, flags, dir_fd=descriptor)
    os.close(descriptor)
    return after


def state_in(folder: int, name: str) -> os.stat_result | None:
    """Return the state of a name in an open folder, or None. A link is not followed."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def require_closed(state: os.stat_result, path: str) -> None:
    """Raise Failure if other accounts can change a folder."""
    if changed_by_others(state):
        raise Failure(f"another account can change {path}", f"give it to root: see 'ls -ld {path}'")


def changed_by_others(state: os.stat_result) -> bool:
    """Return whether accounts besides root can change a file or folder."""
    others = stat.S_IWOTH if state.st_gid in _groups_of_root() else _WRITABLE_BY_OTHERS
    return state.st_uid != os.geteuid() or bool(state.st_mode & others)


@cache
def _groups_of_root() -> frozenset[int]:
    """Return root's groups: Debian gives /usr/local to the group staff, and Ubuntu gives /var/log to syslog."""
    return frozenset({0, *(group.gr_gid for group in grp.getgrall() if group.gr_name in ("staff", "syslog"))})
