"""Restore the state of a lost head node on a new machine, before any of its daemons starts.

That is its identity in the tailnet, with which nodes find it at the old address, its certificate authority, its data
about members, and Slurm's state. It happens once, and only on a machine without such state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.step.step import STATE_DIR, Step
from components.roles.backup.target import TargetValues, check_target, write_target
from components.roles.restore.archive import read_backup, wanted_backup
from components.roles.restore.homes import restore_homes
from components.roles.restore.place import place_files
from components.roles.slurm.folder import CONTROLLER_STATE
from components.roles.users.accounts import Account

# The completely read backup; the marker of a finished restore.
RESTORING = f"{STATE_DIR}/restoring"
RESTORED = f"{STATE_DIR}/restored"
# When the backup was made, and its age when it was read, in seconds.
RESTORED_AGE = f"{STATE_DIR}/restored-age"
_TREE = f"{RESTORING}/tree"
_KEYS = f"{PRIVATE}/backup"


@dataclass(frozen=True)
class RestoreValues(TargetValues):
    """The target, and what to restore.

    restore_from          `latest`, or the id of a backup
    backup_homes_max_gb   0 if users' homes are not saved
    users_lines           the users, whose homes are restored
    node_adopt            whether the machine stays in its tailnet unchanged
    """

    restore_from: str
    backup_homes_max_gb: int
    users_lines: list[Account]
    node_adopt: bool


def restore(step: Step, values: RestoreValues) -> None:
    """Restore, and report the backup's age."""
    if files.exists(RESTORED):
        note(f"this head node was restored from backup {(files.read(RESTORED) or '').strip()}")
    else:
        if not files.exists(f"{_TREE}/whole"):
            _require_new(step)
            _read(values)
        place_files(_TREE, adopt=values.node_adopt)
        if values.backup_homes_max_gb:
            _restore_homes(values)
        if files.exists(f"{_TREE}/age"):
            files.rename(f"{_TREE}/age", RESTORED_AGE)
        files.rename(f"{_TREE}/whole", RESTORED)
        files.remove_folder(RESTORING)
    made, age = map(int, (files.read(RESTORED_AGE) or "0 0").split())
    step.result("restored_made", made)
    step.result("restored_age", max(age, 0))


def _require_new(step: Step) -> None:
    if files.exists(f"{STATE_DIR}/ssh_authority") or files.kind_of(f"{CONTROLLER_STATE}/job_state"):
        raise Failure(
            f"tailrack:head.restore_from needs a new machine, and {step.host} has a head node's state, which would be "
            "lost",
            "remove restore_from from the config; or, to return to the backup, run 'make down' first",
        )


def _restore_homes(values: RestoreValues) -> None:
    # An attempt that was cut off may have moved this file already.
    made = (files.read(f"{_TREE}/age") or files.read(RESTORED_AGE) or "0").split()[0]
    write_target(_KEYS, values)
    try:
        restore_homes(_KEYS, values.backup_cluster, int(made), values.nfs_exports_path, values.users_lines)
    finally:
        files.remove_folder(_KEYS)


def _read(values: RestoreValues) -> None:
    files.remove_folder(_KEYS)
    write_target(_KEYS, values)
    try:
        if not check_target(_KEYS, values):
            raise Failure(
                "there is no archive at the backup's target",
                "correct tailrack:backup.target, or remove tailrack:head.restore_from",
            )
        backup = wanted_backup(_KEYS, values.restore_from, values.backup_cluster)
        read_backup(_KEYS, backup.id, values.backup_cluster, RESTORING)
    finally:
        files.remove_folder(_KEYS)
    files.write(f"{_TREE}/age", f"{backup.made} {int(time.time()) - backup.made}")
    files.write(f"{_TREE}/whole", backup.id)
