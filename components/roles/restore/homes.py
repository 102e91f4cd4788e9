"""Restore users' homes on the share. Existing homes stay as they are: the share may be the lost machine's disk."""

from __future__ import annotations

from collections.abc import Sequence

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import run
from components.roles.backup.homes import TAG, home_path
from components.roles.backup.restic import last_reason, restic
from components.roles.backup.snapshots import Backup, list_backups
from components.roles.users.accounts import Account

# In the share's folder.
_STAGE = ".tailrack-homes"
_HOME_SECONDS = 15 * 3600


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
    uid = files.folders_in(f"{stage}{home_path('')}")[account.name][0]
    if uid != account.uid:
        # The user had another number when the backup was made.
        ids = f"{account.uid}:{account.gid}"
        run("chown", "-hR", f"--from={uid}", ids, files.on_disk(home))
    note(f"restored the home of {account.name} from backup {backup.id[:8]}")
