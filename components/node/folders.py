"""Folders that other accounts can write.

An account can replace anything in its folder by a link, so root never makes, changes, writes or reads a path through
such a folder. Root owns the folders above, each account gets one folder in them, and root reads its files as that
account.
"""

import os
import stat
import struct
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from components.node import files, safe_path
from components.node.failure import Failure
from components.node.files import remove_any
from components.node.safe_path import (
    ABSENT,
    FOLDER,
    ROOT,
    by_descriptor,
    changed_by_others,
    on_disk,
    open_folder,
    open_place,
    state_in,
    step_into,
)

_MOST_BYTES = 65536
_HEADER_BYTES = 4
_ENTRY = struct.Struct("<HHI")
_USER, _GROUP = 2, 8


def take(path: str, mode: int = 0o755) -> None:
    """Make root the owner of a folder. Afterwards only root can change its contents.

    The caller must still check files that an account put there before.
    """
    files.make_folder(path, mode)


def give(account: str, mode: int, path: str) -> None:
    """Give an account a folder inside one of root's.

    If another account owned the folder, its contents change owner too (after a restore, or if the account's uid
    changed). A file with a second hard link keeps its owner: it may belong to any account.
    """
    above = PurePosixPath(path).parent
    if files.exists(str(above)) and files.owner_of(str(above)) != "root":
        raise Failure(
            f"{above} does not belong to root, and must contain the folder {PurePosixPath(path).name} of the account "
            f"{account}",
            f"run 'chown root:root {above}', then run up again",
        )
    if files.exists(path) and not files.is_folder(path):
        raise Failure(
            f"{path} is a link or a file and must be a folder of the account {account}; nothing was changed through it",
            f"find out who made it ('ls -ld {path}'), remove it, then run up again",
        )
    if files.is_folder(path) and files.owner_of(path) != account:
        # No other process can enter from now on.
        take(path, 0o700)
        _give_contents(path, account)
    files.make_folder(path, mode, account)


def _give_contents(path: str, account: str) -> None:
    uid, gid = files.numbers_of(account)
    for _, _, _, folder in os.fwalk(on_disk(path), follow_symlinks=False):
        for entry in os.scandir(folder):
            state = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
            kind = stat.S_IFMT(state.st_mode)
            if kind == stat.S_IFDIR or (kind in (stat.S_IFREG, stat.S_IFLNK) and state.st_nlink == 1):
                os.chown(entry.name, uid, gid, dir_fd=folder, follow_symlinks=False)


def read_theirs(path: str) -> str | None:
    """Return the beginning of a file, read as the owner of its folder, or of the first folder above that is not root's.

    Return None if that fails. If all folders are root's, a link is refused.
    """
    above = (str(folder) for folder in reversed(PurePosixPath(path).parents[:-1]))
    owner = next((owner for owner in map(files.owner_of, above) if owner != "root"), "root")
    if not owner:
        return None
    if owner == "root":
        return files.read(path, _MOST_BYTES)
    from components.node.accounts import as_user

    ended = as_user(owner, "cat", "--", on_disk(path), limit=10, most=_MOST_BYTES)
    return ended.output if ended.ok else None


class Part(NamedTuple):
    """A part of a path: its path from the root, its type and permissions, and its owner (0 is root)."""

    path: str
    type: int
    mode: int
    uid: int


class Acl(NamedTuple):
    """The permissions of named users and groups, as bits, by uid and gid."""

    users: dict[int, int]
    groups: dict[int, int]


def acl_of(path: str) -> Acl:
    """Return the entries of a path; none if its file system has no ACLs."""
    acl = Acl({}, {})
    try:
        data = os.getxattr(on_disk(path), "system.posix_acl_access")
    except OSError:
        return acl
    for tag, permissions, number in _ENTRY.iter_unpack(data[_HEADER_BYTES:]):
        if tag == _USER:
            acl.users[number] = permissions
        elif tag == _GROUP:
            acl.groups[number] = permissions
    return acl


def lstat(path: str) -> os.stat_result | None:
    """Return the state of a path, and None if it does not exist. Nothing is opened.

    Anyone may own the folders above. A link at the end is not followed.
    """
    with suppress(*ABSENT):
        return Path(on_disk(path)).lstat()
    return None


def kind_of(path: str) -> int:
    """Return the type of a path (see lstat), such as stat.S_IFDIR, and 0 if it does not exist."""
    state = lstat(path)
    return stat.S_IFMT(state.st_mode) if state else 0


def parts_of(path: str) -> list[Part]:
    """Return the parts of a path that exist, from the top. No link is followed, and anyone may own the parts."""
    parts: list[Part] = []
    descriptor = os.open(safe_path.root, ROOT)
    try:
        for place in [*reversed(PurePosixPath(path).parents), PurePosixPath(path)][1:]:
            if (state := state_in(descriptor, place.name)) is None:
                break
            uid = 0 if state.st_uid == os.geteuid() else state.st_uid
            parts.append(Part(str(place), stat.S_IFMT(state.st_mode), stat.S_IMODE(state.st_mode), uid))
            if not stat.S_ISDIR(state.st_mode):
                break
            descriptor = step_into(descriptor, place.name, FOLDER)
    finally:
        os.close(descriptor)
    return parts


def names_in_any(path: str) -> list[str]:
    """Return the names in a folder of any account, sorted."""
    descriptor = os.open(on_disk(path), FOLDER)
    try:
        return sorted(entry.name for entry in os.scandir(descriptor))
    finally:
        os.close(descriptor)


def folders_in(path: str) -> dict[str, tuple[int, int]]:
    """Return the uid and gid of each folder in a folder of root's, by name, sorted. The one above may be like /tmp."""
    states = {}
    with suppress(*ABSENT), open_folder(path, closed=False) as folder:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                state = entry.stat(follow_symlinks=False)
                states[entry.name] = (state.st_uid, state.st_gid)
    return states


def make_new_folder(path: str, mode: int = 0o755) -> None:
    """Make a folder of root's where nothing is yet. The folder above may be one like /tmp, where others may add theirs.

    Raises FileExistsError if something is there.
    """
    with open_place(path, closed=False) as place:
        state = place.parent.stat()
        if changed_by_others(state) and not state.st_mode & stat.S_ISVTX:
            raise Failure(f"another account can replace {path}", f"run 'namei -l {path}' to find it")
        place.mkdir(mode)


def empty_folder(path: str) -> None:
    """Remove everything in a folder of any account, and keep the folder. A link in its place is not followed."""
    if not files.is_folder(path):
        return
    with open_place(path) as place:
        descriptor = os.open(place, FOLDER)
    try:
        for entry in [*by_descriptor(descriptor).iterdir()]:
            remove_any(entry)
    finally:
        os.close(descriptor)
