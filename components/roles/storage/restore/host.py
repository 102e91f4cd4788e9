"""Restore the state of a lost head node from its backup, once, on a machine without such state.

It is its identity in the tailnet, with which nodes find it at the old address, its certificate authority, its data
about members, and Slurm's state. The machine keeps its SSH host keys, which the config contains. The munge key comes
from the stack.
"""

import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from components.node import files, folders
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import STATE_DIR, note
from components.node.run import Ended, run
from components.node.step.step import Step
from components.roles.access.users.accounts import Account
from components.roles.network.tailnet import tailscale
from components.roles.network.tailnet.tailscale import STATE_FILE, Tailscale
from components.roles.slurm.slurm.folders import CONTROLLER_STATE, SERVICES, mark_restored, take_slurm_folder
from components.roles.storage.backup.homes import TAG, home_path
from components.roles.storage.backup.restic import Backup, last_reason, list_backups, restic
from components.roles.storage.backup.target import TargetValues, check_target, write_target
from components.roles.storage.share.exports import EXPORTS_DIR

# In the share's folder.
_STAGE = ".tailrack-homes"
_HOME_SECONDS = 15 * 3600
_DUMPS = f"{STATE_DIR}/dumps"
# The completely read backup; the marker of a finished restore.
RESTORING = f"{STATE_DIR}/restoring"
RESTORED = f"{STATE_DIR}/restored"
# When the backup was made, and its age when it was read, in seconds.
RESTORED_AGE = f"{STATE_DIR}/restored-age"
_TREE = f"{RESTORING}/tree"
_KEYS = f"{PRIVATE}/backup"


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
    ended = restic(folder, "--no-lock", "restore", backup, "--target", files.on_disk(tree), "--verify", limit=3000)
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
    return folders.kind_of(path) == stat.S_IFDIR


def restore_homes(keys: str, cluster: str, made: int, share: str, accounts: Sequence[Account]) -> None:
    """Restore the homes of users who have none. It can be repeated.

    keys    the folder with the target's keys
    made    when the head node's backup was made
    share   the share's folder
    """
    backups = backups_of_homes(keys, cluster, made)
    if not backups:
        note("there is no backup of the users' homes")
        return
    stage, homes = f"{share}/{_STAGE}", f"{share}/home"
    for folder in (share, homes):
        if not files.is_folder(folder):
            files.make_folder(folder)
    # No user can enter it: restic writes links and owners of files there as root.
    files.make_folder(stage, 0o700)
    for account in accounts:
        if files.exists(f"{homes}/{account.name}"):
            note(f"{homes}/{account.name} exists and stays as it is")
        elif account.name in backups:
            _restore_home(keys, backups[account.name], stage, account)
            files.rename(f"{stage}{home_path(account.name)}", f"{homes}/{account.name}")
    files.remove_folder(stage)
    if others := sorted(backups.keys() - {account.name for account in accounts}):
        note(f"not restored, because tailrack:users does not contain them: the homes of {', '.join(others)}")


def backups_of_homes(folder: str, cluster: str, made: int) -> dict[str, Backup]:
    """Return the backup of each home that belongs to the head node's backup of a time, by the user's name.

    It is the last one before the next backup of the head node.
    """
    later = [b.made for b in list_backups(folder, "tailrack") if b.cluster == cluster and b.made > made]
    homes = sorted(b for b in list_backups(folder, TAG) if b.cluster == cluster and b.home)
    return {backup.home: backup for backup in homes if not later or backup.made < min(later)}


def _restore_home(keys: str, backup: Backup, stage: str, account: Account) -> None:
    home = f"{stage}{home_path(account.name)}"
    files.remove_folder(home)
    ended = restic(keys, "--no-lock", "restore", backup.id, "--target", files.on_disk(stage), limit=_HOME_SECONDS)
    if not ended.ok or not files.is_folder(home):
        raise Failure(
            f"cannot restore the home of {account.name} from backup {backup.id[:8]}: {last_reason(ended.errors)}",
            "check 'df -h' and the backup's target, then run up again; or remove tailrack:backup.homes to restore the "
            "head node without homes",
        )
    uid = folders.folders_in(f"{stage}{home_path('')}")[account.name][0]
    if uid != account.uid:
        # The user had another number when the backup was made.
        ids = f"{account.uid}:{account.gid}"
        run("chown", "-hR", f"--from={uid}", ids, files.on_disk(home))
    note(f"restored the home of {account.name} from backup {backup.id[:8]}")


def place_files(tree: str, *, adopt: bool) -> None:
    """Copy the files of a tree. It can be repeated.

    adopt   whether the machine stays in its tailnet unchanged
    """
    if is_folder(f"{tree}{STATE_DIR}"):
        _copy(f"{tree}{STATE_DIR}", "/var/lib/")
    if is_folder(f"{tree}{CONTROLLER_STATE}"):
        _place_slurm_state(f"{tree}{CONTROLLER_STATE}")
    # Services add their lines to slurm.conf again when they run: a new slurmctld does not start without slurmdbd, which
    # comes later.
    files.remove_folder(SERVICES)
    for name in files.names_in(f"{tree}{EXPORTS_DIR}"):
        text = files.read(f"{tree}{EXPORTS_DIR}/{name}")
        if text is not None and name.startswith("tailrack-") and name.endswith(".exports"):
            files.write(f"{EXPORTS_DIR}/{name}", text)
    if is_folder(f"{tree}/dumps"):
        files.remove_folder(_DUMPS)
        _copy(f"{tree}/dumps", _DUMPS)
    _take_over_identity(files.read(f"{tree}{STATE_FILE}") or "", adopt=adopt)


def _place_slurm_state(source: str) -> None:
    """Restore slurmctld's state. It belongs to root until Slurm's account exists (slurm/folders.py)."""
    fresh = f"{CONTROLLER_STATE}.restored"
    # A backup may be forged. The tree is in a folder of root's.
    run("find", files.on_disk(source), "!", "-type", "f", "!", "-type", "d", "-delete")
    take_slurm_folder()
    files.remove_folder(fresh)
    _copy(source, fresh, "--no-preserve=ownership")
    mark_restored()
    files.remove_folder(CONTROLLER_STATE)
    files.rename(fresh, CONTROLLER_STATE)


def _take_over_identity(state: str, *, adopt: bool) -> None:
    """Take over the lost machine's tailnet identity and address.

    Do not if this machine is a member already, or the state was sealed by the lost machine's TPM.
    """
    if adopt or '"_machinekey"' not in state or Tailscale().has_login:
        note("joining the tailnet as a new machine")
        return
    if tailscale.is_installed():
        run("systemctl", "stop", "tailscaled")
    files.make_folder("/var/lib/tailscale", 0o700)
    files.write(STATE_FILE, state, 0o600)
    note("took over the lost head node's identity in the tailnet")


def _copy(source: str, to: str, *options: str) -> None:
    run("cp", "-a", *options, files.on_disk(source), files.on_disk(to))


def load_dump(step: Step, file: str, database: str, load: Callable[[BinaryIO], Ended], fix: str) -> None:
    """Replace a database with that of the lost head node, from a file of the backup, and remove the file.

    Doing it twice is safe.
    """
    path = f"{_DUMPS}/{file}"
    if (descriptor := files.open_to_read(path)) is None:
        return
    with os.fdopen(descriptor, "rb") as dump:
        if not os.fstat(descriptor).st_size:
            return
        note(f"restoring {database} of the lost head node")
        if not load(dump).ok:
            raise Failure(
                f"cannot restore {database} of the lost head node",
                f"{fix}, or remove {path} on {step.host} to start with an empty database; then run up again",
            )
    files.remove(path)


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
    if files.exists(f"{STATE_DIR}/ssh_authority") or folders.kind_of(f"{CONTROLLER_STATE}/job_state"):
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
        restore_homes(_KEYS, values.backup_cluster, int(made), values.share_path, values.users_lines)
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
