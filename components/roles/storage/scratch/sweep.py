"""Clean scratch folders: those of ended jobs, and caches beyond their limits.

A user's cache is left alone while the user has a job on this node.
"""

import os
import secrets
import stat
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from components.node import files, folders
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import STATE_DIR
from components.node.run import succeeds

# First line: the present parent of jobs' folders, empty without one; then former parents that may still contain some.
SCRATCH = "/etc/tailrack/scratch"
# The same for the parents of users' cache folders, which are named by uid.
CACHES = "/etc/tailrack/scratch-caches"
# One line: the days and percents of caches.
LIMITS = "/etc/tailrack/scratch-limits"
# Folders that the role created, one per line.
MADE = f"{STATE_DIR}/scratch-made"
CLEAN = "/usr/local/lib/tailrack/scratch-clean"
# One file per job on this node, named by its number (health/jobs).
JOBS_HERE = f"{PRIVATE}/jobs"
# Even the owner may lack write permission on a folder.
_EMPTY = 'find "$1" -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} +; exec find "$1" -xdev -mindepth 1 -delete'
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


def is_there(folder: str) -> bool:
    """Return whether a folder exists. The one above may be like /tmp."""
    parts = folders.parts_of(folder)
    return bool(parts) and parts[-1].path == folder and parts[-1].type == stat.S_IFDIR


def sweep() -> None:
    """Empty the folders of jobs that are no longer on this node."""
    for number, folder in enumerate(files.lines(SCRATCH)):
        if not folder:
            continue
        put_aside_ended(folder)
        for name, owner in folders.folders_in(folder).items():
            if name.startswith("gone."):
                empty_folder(f"{folder}/{name}", owner, "--no-block")
        # No new jobs get folders in a former parent.
        if number:
            files.remove_if_empty(folder)


def put_aside_ended(folder: str) -> None:
    """Rename folders of ended jobs, because the same job may start here again."""
    for name in folders.folders_in(folder):
        if name[0].isdigit() and not files.exists(f"{JOBS_HERE}/{name}"):
            _put_aside(folder, name)


def _put_aside(folder: str, name: str) -> None:
    if is_there(f"{folder}/{name}"):
        suffix = f"{name}.{int(time.time())}.{secrets.randbelow(32768)}"
        files.rename(f"{folder}/{name}", f"{folder}/gone.{suffix}")


def empty_folder(path: str, owner: tuple[int, int], *options: str) -> None:
    """Empty a folder as its owner, in the background and however long it takes.

    root would follow links that the owner puts in the way. root owns the parent and removes the empty folder.

    options   more options of systemd-run
    """
    place = files.on_disk(path)
    settings = ("-p", "RuntimeMaxSec=6h", "-p", f"ExecStopPost=+-/bin/rmdir {place}", *options)
    succeeds(*_as_owner("scratch", path, owner, *settings), "/bin/sh", "-c", _EMPTY, "-", place)


def _as_owner(kind: str, path: str, owner: tuple[int, int], *options: str) -> tuple[str, ...]:
    """Return the command that runs another one as a folder's owner with the least priority."""
    uid, gid = owner
    properties = (f"User={uid}", f"Group={gid}", "NoNewPrivileges=yes", "Nice=19", "IOSchedulingClass=idle")
    settings = (word for one in properties for word in ("-p", one))
    # The unit's name prevents handling a folder twice at once.
    unit = f"--unit=tailrack-{kind}-{path.rpartition('/')[2]}"
    return ("systemd-run", "-q", "--collect", unit, *settings, *options)


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
    return {name: owner for name, owner in folders.folders_in(folder).items() if name not in users}


def _clean(path: str, owner: tuple[int, int], minutes: int) -> None:
    run = _as_owner("cache", path, owner, "--wait", "-p", f"RuntimeMaxSec={_LIMIT_SECONDS}")
    command = ("/bin/sh", "-c", _CLEAN, "-", files.on_disk(path), str(minutes))
    succeeds(*run, *command, limit=_LIMIT_SECONDS + 60)


def _used_percent(folder: str) -> int:
    """Return how full the disk is, as df does."""
    disk = os.statvfs(files.on_disk(folder))
    used = disk.f_blocks - disk.f_bfree
    return -(-100 * used // max(used + disk.f_bavail, 1))


def main(arguments: Sequence[str]) -> int:
    """Clean it. `begin` instead makes a job's folders before it, and `end` removes them after it."""
    if not arguments:
        sweep()
        clean_caches()
        return 0
    with suppress(OSError, Failure):
        sweep()
    return _begin_job() if arguments[0] == "begin" else 0


def _begin_job() -> int:
    """Make the user's folder for caches and the job's folder, if the config sets them. Return the exit status."""
    job, uid, gid = (os.environ[f"SLURM_JOB_{name}"] for name in ("ID", "UID", "GID"))
    folder, caches = ((files.lines(path) or [""])[0] for path in (SCRATCH, CACHES))
    if caches:
        # A job runs without caches too: task-prolog names only a folder of the user's.
        with suppress(OSError):
            _give_folder(f"{caches}/{uid}", uid, gid)
    try:
        if folder:
            _put_aside(folder, job)
            _give_folder(f"{folder}/{job}", uid, gid)
    except OSError:
        text = f"check 'df -h {folder}' and 'df -i {folder}' on this node, free space or repair the disk, then resume"
        sys.stdout.write(f"next: {text} the node\ncannot create a folder for the job in {folder}\n")
        return 1
    return 0


def _give_folder(path: str, uid: str, gid: str) -> None:
    """Make a folder for a user, if it is missing. A power cut may have left it to root, who owns the folder above."""
    place = Path(files.on_disk(path))
    if not is_there(path):
        place.mkdir(0o700)
    if place.lstat().st_uid == os.geteuid():
        os.chown(place, int(uid), int(gid), follow_symlinks=False)
