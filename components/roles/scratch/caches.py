"""Users' cache folders on this node's scratch disk: remove files that were not used lately.

A user's cache is left alone while the user has a job on this node.
"""

from __future__ import annotations

import os

from components.node import files
from components.node.run import succeeds
from components.roles.scratch.paths import CACHES, LIMITS
from components.roles.scratch.sweep import JOBS_HERE, empty_folder, is_there

_MINUTES_OF_DAY = 1440
# The shortest time without use after which a file is removed to make room.
_LEAST_MINUTES = 60
_LIMIT_SECONDS = 3600
# Delete files that were neither read nor changed for $2 minutes, links without a target, and folders that stay empty.
# A file that is unpacked keeps an old time of change, so the time of its creation counts too (cmin).
_CLEAN = """cd "$1" || exit
find . -xdev -type f -amin +"$2" -mmin +"$2" -cmin +"$2" -delete
find . -xdev -type l -xtype l -delete
exec find . -xdev -mindepth 1 -type d -empty -mmin +60 -delete"""


def clean_caches() -> None:
    """Remove files that are older than the config allows; on a full disk also newer ones, the oldest first."""
    folders = files.lines(CACHES)
    for folder in filter(None, folders[1:]):
        remove_caches(folder)
    if not folders or not folders[0] or not is_there(folders[0]):
        return
    days, percent = map(int, (files.read(LIMITS) or "30 85").split()[:2])
    minutes = days * _MINUTES_OF_DAY
    while minutes >= _LEAST_MINUTES:
        for name, owner in _unused(folders[0]).items():
            _clean(f"{folders[0]}/{name}", owner, minutes)
        if _used_percent(folders[0]) <= percent:
            return
        minutes //= 2


def remove_caches(folder: str, *options: str) -> None:
    """Empty the caches of a former folder, and remove it when none is left. Caches of running jobs stay.

    options   more options of systemd-run
    """
    for name, owner in _unused(folder).items():
        empty_folder(f"{folder}/{name}", owner, *(options or ("--no-block",)))
    files.remove_if_empty(folder)


def _unused(folder: str) -> dict[str, tuple[int, int]]:
    """Return the caches of users without a job on this node, by name, with their owners."""
    users = {(files.read(f"{JOBS_HERE}/{job}") or "").strip() for job in files.names_in(JOBS_HERE)}
    return {name: owner for name, owner in files.folders_in(folder).items() if name not in users}


def _clean(path: str, owner: tuple[int, int], minutes: int) -> None:
    uid, gid = owner
    place = files.on_disk(path)
    properties = (
        *(f"User={uid}", f"Group={gid}", "NoNewPrivileges=yes"),
        *("Nice=19", "IOSchedulingClass=idle", f"RuntimeMaxSec={_LIMIT_SECONDS}"),
    )
    settings = (word for one in properties for word in ("-p", one))
    unit = f"--unit=tailrack-cache-{path.rpartition('/')[2]}"
    command = ("/bin/sh", "-c", _CLEAN, "-", place, str(minutes))
    succeeds("systemd-run", "-q", "--collect", "--wait", unit, *settings, *command, limit=_LIMIT_SECONDS + 60)


def _used_percent(folder: str) -> int:
    """Return how full the disk is, as df does."""
    disk = os.statvfs(files.on_disk(folder))
    used = disk.f_blocks - disk.f_bfree
    return -(-100 * used // max(used + disk.f_bavail, 1))
