"""Remove files that jobs have left in their scratch folders on this node's disks, as the scripts around jobs do."""

from __future__ import annotations

import secrets
import stat
import time

from components.node import files
from components.node.locks import PRIVATE
from components.node.run import succeeds
from components.roles.scratch.paths import SCRATCH

# One file per job on this node, named by its number (health/jobs).
JOBS_HERE = f"{PRIVATE}/jobs"
# Even the owner may lack write permission on a folder.
_EMPTY = 'find "$1" -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} +; exec find "$1" -xdev -mindepth 1 -delete'


def is_there(folder: str) -> bool:
    """Return whether a folder exists. The one above may be like /tmp."""
    parts = files.parts_of(folder)
    return bool(parts) and parts[-1].path == folder and parts[-1].type == stat.S_IFDIR


def sweep() -> None:
    """Empty the folders of jobs that are no longer on this node."""
    for number, folder in enumerate(files.lines(SCRATCH)):
        if not folder:
            continue
        put_aside_ended(folder)
        for name, owner in files.folders_in(folder).items():
            if name.startswith("gone."):
                empty_folder(f"{folder}/{name}", owner, "--no-block")
        # No new jobs get folders in a former parent.
        if number:
            files.remove_if_empty(folder)


def put_aside_ended(folder: str) -> None:
    """Rename folders of ended jobs, because the same job may start here again."""
    for name in files.folders_in(folder):
        if name[0].isdigit() and not files.exists(f"{JOBS_HERE}/{name}"):
            suffix = f"{name}.{int(time.time())}.{secrets.randbelow(32768)}"
            files.rename(f"{folder}/{name}", f"{folder}/gone.{suffix}")


def empty_folder(path: str, owner: tuple[int, int], *options: str) -> None:
    """Empty a folder as its owner, in the background and however long it takes.

    root would follow links that the owner puts in the way. root owns the parent and removes the empty folder.

    options   more options of systemd-run
    """
    place = files.on_disk(path)
    uid, gid = owner
    properties = (
        *(f"User={uid}", f"Group={gid}", "NoNewPrivileges=yes"),
        *("Nice=19", "IOSchedulingClass=idle", "RuntimeMaxSec=6h"),
        f"ExecStopPost=+-/bin/rmdir {place}",
    )
    # The unit's name prevents handling a folder twice at once.
    unit = f"--unit=tailrack-scratch-{path.rpartition('/')[2]}"
    settings = (word for one in properties for word in ("-p", one))
    succeeds("systemd-run", "-q", "--collect", unit, *settings, *options, "/bin/sh", "-c", _EMPTY, "-", place)
