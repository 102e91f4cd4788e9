"""The command `share`: protect the machine that serves the share.

Root of a compute node can create files there with any uid but root's, set-uid files too. On this machine no program of
the share runs with other rights, through any mount, and only the cluster's users can enter.

    tailrack-share close   at boot, by every `up`, when accounts change, and on a storage node when members do
    tailrack-share open    undoes it when the machine leaves
"""

import os
import re
import stat
import sys
from collections.abc import Sequence
from typing import NamedTuple

from components.node import files, folders, systemd
from components.node.failure import Failure, run_program
from components.node.folders import acl_of
from components.node.kernel import Mount, mounts, mounts_at
from components.node.locks import Lock, lock_of_program
from components.node.log import STATE_DIR
from components.node.passwd import user_named
from components.node.run import attempt, run
from components.roles.storage.share import ganesha
from components.roles.storage.share.exports import export_to_members
from components.roles.storage.share.kernel_server import SERVER, reload_kernel_server

# SHARE, its folder; USERS, uids of the cluster's users, separated by blanks; on a storage node HEAD, name and address
# of the head node (host.py).
SETTINGS = "/etc/tailrack/share"
# Records: folders bound to themselves, mounts with their earlier flags, excluded uids.
_STATE = f"{STATE_DIR}/share"
_BOUND, _FLAGS, _KEPT_OUT = f"{_STATE}/bound", f"{_STATE}/flags", f"{_STATE}/kept-out"
# Empty files, written when closing begins and renamed when it has ended: changes after CLOSED are not applied yet.
_BEGUN, CLOSED = f"{_STATE}/begun", f"{_STATE}/closed"
_NOBODY = 65534
# Accounts of this program that have no other rights and read only what everyone can read.
_READERS = ("tailrack-data",)


class Settings(NamedTuple):
    """The folder of the share, the uids of the cluster's present users, and on a storage node the head node."""

    share: str
    users: frozenset[int]
    head: str


def main(arguments: Sequence[str]) -> int:
    """Run the program and return the exit status."""
    commands = {"close": close_share, "open": open_share}
    if len(arguments) != 1 or arguments[0] not in commands:
        sys.stderr.write("usage: tailrack-share close|open\n")
        return 1
    return run_program("tailrack-share", commands[arguments[0]])


def close_share() -> None:
    """Close the share. Raises Failure."""
    with _lock():
        os.close(files.open_to_write(_BEGUN))
        settings = _settings()
        _close_ways(settings.share)
        _exclude(sorted(_accounts() - _cluster_uids(settings)), settings.share)
        if settings.head:
            export_to_members(settings.share, settings.head)
            # A server that does not run reads the files when it starts. Do not wait for it: it starts after this.
            if systemd.is_active(SERVER):
                reload_kernel_server()
            elif systemd.is_active(ganesha.SERVER):
                ganesha.configure_ganesha(settings.share)
        files.rename(_BEGUN, CLOSED)


def open_share() -> None:
    """Undo everything. Raises Failure."""
    with _lock():
        _exclude([], _settings().share)
        for place in reversed(files.lines(_BOUND)):
            # Unmount lazily: users there continue on the file system below.
            if not attempt("umount", "-l", place).ok:
                _say(f"{place} is still bound to itself")
        for flags, _, place in (line.partition(" ") for line in files.lines(_FLAGS)):
            options = f"remount,bind,suid,dev,{flags}"
            if mounts_at(place) and not attempt("mount", "-i", "-o", options, place).ok:
                _say(f"{place} still has its changed flags")
        files.remove_folder(_STATE)


def _lock() -> Lock:
    files.make_folder(_STATE, 0o700)
    return lock_of_program("share", ", then try again")


def _settings() -> Settings:
    pattern = r"^SHARE='(.*)'\nUSERS='([0-9 ]*)'(?:\nHEAD='(.*)')?$"
    found = re.search(pattern, files.read(SETTINGS) or "", re.MULTILINE)
    if not found:
        raise Failure(f"{SETTINGS} does not name the share")
    return Settings(found[1], frozenset(map(int, found[2].split())), found[3] or "")


def _say(text: str) -> None:
    sys.stderr.write(f"tailrack-share: {text}\n")


# Mounts.


def _close_ways(share: str) -> None:
    """Protect the share's path and all other mounts of its file system that contain the share or a part of it."""
    everything = mounts()
    own = _mount_of(share, everything)
    device, folder = ("", "") if own is None else (own.device, f"{_bare(own.root)}{_inside(share, own.target)}")
    for mount in everything:
        if not _is_folder(mount.target):
            continue
        if mount.device == device and _inside(mount.root, folder) is not None:
            _take_flags(mount)
        elif mount.device == device and (rest := _inside(folder, mount.root)) is not None:
            place = f"{_bare(mount.target)}{rest}"
            on_top = _mount_of(place, mounts())
            # Skip a path that another mount covers.
            if _is_folder(place) and on_top and on_top.target == mount.target:
                _bind_to_itself(place)
        elif _inside(mount.target, share) is not None and _root_owns_parents(mount.target, share):
            _take_flags(mount)


def _mount_of(path: str, everything: Sequence[Mount]) -> Mount | None:
    """Return the mount that a path is in: the one with the longest path, and the last of these."""
    around = [mount for mount in everything if _inside(path, mount.target) is not None]
    return max(reversed(around), key=lambda mount: len(mount.target), default=None)


def _inside(inner: str, outer: str) -> str | None:
    """Return the path from the second folder to the first one inside it; empty if they are the same."""
    inner, outer = _bare(inner), _bare(outer)
    return inner[len(outer) :] if f"{inner}/".startswith(f"{outer}/") else None


def _bare(path: str) -> str:
    return path.removesuffix("/")


def _is_folder(path: str) -> bool:
    try:
        return folders.kind_of(path) == stat.S_IFDIR
    except OSError:
        return False


def _root_owns_parents(place: str, share: str) -> bool:
    """Return whether only root can replace a folder on the path from the share."""
    above = [part for part in folders.parts_of(place) if part.path != place and _inside(part.path, share) is not None]
    return all(part.uid == 0 for part in above)


def _take_flags(mount: Mount) -> None:
    if {"nosuid", "nodev"} <= set(mount.flags.split(",")):
        return
    # Record an action before it is done.
    files.add_line(_FLAGS, f"{mount.flags} {mount.target}")
    # Change only this mount, in use or not, without a helper of the file system.
    run("mount", "-i", "-o", f"remount,bind,{mount.flags},nosuid,nodev", mount.target)
    _say(f"no set-uid programs and no devices at {mount.target}")


def _bind_to_itself(place: str) -> None:
    files.add_line(_BOUND, place)
    run("mount", "-o", "bind,nosuid,nodev", place, place)
    _say(f"no set-uid programs and no devices at {place}")


# Accounts.


def _accounts() -> set[int]:
    """Return the uids of local accounts and of members of local groups.

    Accounts of a directory cannot all be listed.
    """
    local = (line.split(":") for line in files.lines("/etc/passwd"))
    groups = (line.split(":") for line in files.lines("/etc/group"))
    members = {name for row in groups if len(row) > 3 for name in row[3].split(",") if name}
    return {int(row[2]) for row in local if len(row) > 2 and row[2].isdecimal()} | _uids(members)


def _cluster_uids(settings: Settings) -> set[int]:
    """Return the uids of the cluster's present and former users.

    Former users' accounts are closed, and work in their homes runs as them.
    """
    return {0, _NOBODY, *settings.users} | _uids([*files.lines(f"{STATE_DIR}/users"), *_READERS])


def _uids(names: Sequence[str] | set[str]) -> set[int]:
    return {user.pw_uid for user in map(user_named, names) if user}


def _exclude(wanted: Sequence[int], share: str) -> None:
    """Exclude accounts by ACL entries on the share's root. Entries of the machine's owner stay."""
    present, kept = acl_of(share).users, [int(line) for line in files.lines(_KEPT_OUT)]
    fresh = [uid for uid in wanted if uid not in present]
    # Record entries before they are made.
    if fresh:
        _record_kept_out([*kept, *(uid for uid in fresh if uid not in kept)])
    change = [word for uid in fresh for word in ("-m", f"u:{uid}:---")]
    change += [word for uid in kept if uid not in wanted and present.get(uid) == 0 for word in ("-x", f"u:{uid}")]
    if not change:
        return
    if not attempt("setfacl", *change, "--", share).ok:
        raise Failure(
            f"cannot exclude accounts of this machine that are not users of the cluster from {share}: its file system "
            "needs POSIX ACLs (on ZFS, 'zfs set acltype=posix')"
        )
    # Without entries, remove the mask, so that the list is a mode again.
    if not any(acl_of(share)):
        run("setfacl", "-x", "m", "--", share)
    _record_kept_out(wanted)


def _record_kept_out(uids: Sequence[int]) -> None:
    if uids:
        files.write(_KEPT_OUT, "\n".join(map(str, uids)))
    else:
        files.remove(_KEPT_OUT)
