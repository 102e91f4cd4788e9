"""Remove files that jobs have left in their scratch folders on this node's disks, as the scripts around jobs do."""

from __future__ import annotations

import secrets
import stat
import time
from collections.abc import Sequence

from components.node import files
from components.node.locks import PRIVATE
from components.node.run import succeeds
from components.roles.scratch.paths import COPIES, LIMITS, SCRATCH, SYNC

# One file per job on this node, named by its number (health/jobs).
JOBS_HERE = f"{PRIVATE}/jobs"
# Even the owner may lack write permission on a folder.
_EMPTY = 'find "$1" -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} +; exec find "$1" -xdev -mindepth 1 -delete'
# A copy ends itself at its limit; systemd ends it after so many more seconds.
_MORE_SECONDS = 600
# Copies must not slow jobs down. A user's rclone config can run programs, which must not get GPUs without a job.
_COPY_LIMITS = ("Nice=19", "CPUQuota=100%", "MemoryMax=2G", "TasksMax=256", "DevicePolicy=closed")


def is_there(folder: str) -> bool:
    """Return whether a folder exists. The one above may be like /tmp."""
    parts = files.parts_of(folder)
    return bool(parts) and parts[-1].path == folder and parts[-1].type == stat.S_IFDIR


def sweep() -> None:
    """Empty the folders of jobs that are no longer on this node, after their copies (`tailrack sync`) are made."""
    for number, folder in enumerate(files.lines(SCRATCH)):
        if not folder:
            continue
        put_aside_ended(folder)
        for name, owner in files.folders_in(folder).items():
            if name.startswith("sync."):
                copy_folder(folder, name, owner, "--no-block")
        for name, owner in files.folders_in(folder).items():
            if name.startswith("gone."):
                empty_folder(f"{folder}/{name}", owner, "--no-block")
        # No new jobs get folders in a former parent.
        if number:
            files.remove_if_empty(folder)


def put_aside_ended(folder: str) -> None:
    """Rename folders of ended jobs, because the same job may start here again: `sync.` if it has copies to make."""
    for name in files.folders_in(folder):
        if name[0].isdigit() and not files.exists(f"{JOBS_HERE}/{name}"):
            suffix = f"{name}.{int(time.time())}.{secrets.randbelow(32768)}"
            kind = "sync" if sync_hours() and is_there(f"{folder}/{name}/{COPIES}") else "gone"
            files.rename(f"{folder}/{name}", f"{folder}/{kind}.{suffix}")


def sync_hours() -> int:
    """Return for how long copies may go on after a job; 0 without scratch space."""
    words = (files.read(LIMITS) or "").split()
    return int(words[2]) if len(words) == 3 else 0


def copy_folder(folder: str, name: str, owner: tuple[int, int], *options: str) -> None:
    """Make the copies that an ended job's user has asked for, as the user; then the folder is emptied.

    The program is tailrack's, and the user's only the files that it reads. A folder whose time is over is put aside.
    """
    seconds = sync_hours() * 3600 + _MORE_SECONDS
    began = "".join(name.split(".")[2:3])
    if time.time() > (int(began) if began.isdecimal() else 0) + seconds:
        files.rename(f"{folder}/{name}", f"{folder}/gone.{name.partition('.')[2]}")
        return
    path = files.on_disk(f"{folder}/{name}")
    limits = (*_COPY_LIMITS, f"RuntimeMaxSec={seconds}")
    _as_owner(path, name, owner, limits, options, (files.on_disk(SYNC), path))


def empty_folder(path: str, owner: tuple[int, int], *options: str) -> None:
    """Empty a folder as its owner, in the background and however long it takes.

    root would follow links that the owner puts in the way. root owns the parent and removes the empty folder.

    options   more options of systemd-run
    """
    place = files.on_disk(path)
    limits = ("Nice=19", "IOSchedulingClass=idle", "RuntimeMaxSec=6h")
    _as_owner(place, path.rpartition("/")[2], owner, limits, options, ("/bin/sh", "-c", _EMPTY, "-", place))


def unit_of(name: str) -> str:
    """Return the unit that handles a folder."""
    return f"tailrack-scratch-{name}"


def _as_owner(
    place: str,
    name: str,
    owner: tuple[int, int],
    limits: Sequence[str],
    options: Sequence[str],
    command: Sequence[str],
) -> None:
    uid, gid = owner
    properties = (
        *(f"User={uid}", f"Group={gid}", "NoNewPrivileges=yes"),
        *limits,
        f"ExecStopPost=+-/bin/rmdir {place}",
    )
    # The unit's name prevents handling a folder twice at once.
    unit = f"--unit={unit_of(name)}"
    settings = (word for one in properties for word in ("-p", one))
    succeeds("systemd-run", "-q", "--collect", unit, *settings, *options, *command)
