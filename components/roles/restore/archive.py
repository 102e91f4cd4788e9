"""Find a backup at the target, and read it."""

from __future__ import annotations

import stat

from components.node import files
from components.node.failure import Failure
from components.roles.backup.restic import last_reason, restic
from components.roles.backup.snapshots import Backup, list_backups
from components.roles.slurm.folder import CONTROLLER_STATE

_READ_SECONDS = 3000


def wanted_backup(folder: str, wanted: str, cluster: str) -> Backup:
    """Return the backup of the cluster with an id, or its latest one.

    folder   the target's keys
    """
    backups = list_backups(folder, "tailrack")
    own = [backup for backup in backups if backup.cluster == cluster]
    if found := [backup for backup in own if wanted == "latest" or backup.id.startswith(wanted)]:
        return max(found)
    clusters = ", ".join(sorted({backup.cluster for backup in backups}))
    raise Failure(
        f"there is no backup{f' ({wanted})' if wanted else ''} of cluster {cluster} at the backup's target"
        f"{f', only of {clusters}' if clusters else ''}",
        f"set tailrack:backup.target to the target of {cluster}, or set tailrack:head.restore_from to latest",
    )


def read_backup(folder: str, backup: str, cluster: str, to: str) -> None:
    """Read a whole backup into the folder `<to>/tree` and verify its blocks, before anything is restored."""
    files.remove_folder(to)
    files.make_folder(to, 0o700)
    tree = f"{to}/tree"
    ended = restic(
        folder, "--no-lock", "restore", backup, "--target", files.on_disk(tree), "--verify", limit=_READ_SECONDS
    )
    if not ended.ok:
        files.remove_folder(to)
        raise Failure(
            f"the backup {backup[:8]} is broken: {last_reason(ended.errors)}",
            "set tailrack:head.restore_from to an earlier one ('restic snapshots' lists them), then run up again",
        )
    # Accounts may own folders in the tree, but no account can enter it.
    if f"cluster={cluster}" not in files.lines(f"{tree}/backup") or not is_folder(f"{tree}{CONTROLLER_STATE}"):
        files.remove_folder(to)
        raise Failure(
            f"the backup {backup[:8]} is not one of a head node of {cluster}",
            "set tailrack:head.restore_from to another one, then run up again",
        )


def is_folder(path: str) -> bool:
    """Return whether a path in the tree is a folder."""
    return files.kind_of(path) == stat.S_IFDIR
