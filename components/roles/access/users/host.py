"""The steps of the cluster's users: the same accounts on every machine (accounts.py), and their homes on the share.

Leaving removes the accounts that tailrack created, with their crontabs and lingering sessions. Their files on the share
keep their uids, so the next account with such a uid owns them.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import PurePosixPath

from components.node import files, folders
from components.node.accounts import owns_folder
from components.node.failure import Failure
from components.node.log import note
from components.node.passwd import group_named, user_named
from components.node.run import attempt, exists, succeeds
from components.node.step.step import Step
from components.roles.access.users import accounts
from components.roles.access.users.accounts import GROUPS_MADE, HOME_LIMIT, Account, UsersValues, in_home, made_here
from components.slurm_commands import slurm

# Commands of the user: create one key pair and authorize it. Leave anything alone that is not a plain file.
_OWN_KEY = """umask 077
mkdir -p .ssh
if [ ! -s .ssh/id_ed25519.pub ]; then
    rm -f .ssh/id_ed25519
    ssh-keygen -q -t ed25519 -N "" -C "$USER@cluster" -f .ssh/id_ed25519
fi
[ ! -e .ssh/authorized_keys ] || [ -f .ssh/authorized_keys ]
grep -qsxF "$(cat .ssh/id_ed25519.pub)" .ssh/authorized_keys || cat .ssh/id_ed25519.pub >>.ssh/authorized_keys
chmod 0600 .ssh/authorized_keys"""
# Commands of the user in the folder of the homes. A home appears whole.
_OWN_HOME = """rm -rf -- "$USER.new"
mkdir -m 0700 -- "$USER.new"
cp -rT /etc/skel "$USER.new"
mv -T -- "$USER.new" "$USER\""""
_NO_KEYS = "rm -f .ssh/authorized_keys .ssh/id_ed25519 .ssh/id_ed25519.pub"
_TRIES = 5


def check(step: Step, values: UsersValues) -> None:
    """Check the accounts, and change nothing."""
    accounts.refuse_clashes(values, step.host)


def machine(step: Step, values: UsersValues) -> None:
    """Make the accounts as the config has them."""
    accounts.refuse_clashes(values, step.host)
    for account in values.users_lines:
        accounts.ensure(account, values)
    for name in accounts.gone(values.users_lines):
        accounts.close(name)


def head(step: Step, values: UsersValues) -> None:
    """Make the homes as the config has them."""
    from components.roles.storage.share.host import close_share
    from components.roles.storage.share.protect import SETTINGS

    prepare_share(step, values.share_path)
    # Admit new users to the share before commands run as them: they may have had an account here that was kept out.
    if files.exists(SETTINGS):
        close_share(step, values.share_path, values.users_lines)
    # Those on another server are made when they are mounted (role mounts).
    if not values.users_homes:
        make_homes(values, step.host)


def make_homes(values: UsersValues, host: str) -> None:
    """Make the homes that are missing, with a key of each user, and remove the keys of former users.

    Raises Failure for homes on another server that this machine may not make, or that belong to others.
    """
    folder, elsewhere = accounts.homes_of(values.users_homes, values.share_path), bool(values.users_homes)
    if elsewhere:
        _require_closed(folder)
    missing = [account for account in values.users_lines if not _ensure_home(account, folder, elsewhere)]
    for name in accounts.gone(values.users_lines):
        _forget_keys(name, f"{folder}/{name}")
    if missing:
        first = missing[0]
        raise Failure(
            f"there is no home in {folder} that belongs to {', '.join(account.name for account in missing)}, and "
            "neither root nor the user may make one",
            f"make them on the server, in the folder that is mounted at {folder} on {host}, such as 'install -d "
            f"-m 0700 -o {first.uid} -g {first.gid} {first.name}'; then run up again",
        )


def _require_closed(folder: str) -> None:
    """Raise Failure if another account than root could replace a home, or a folder above it."""
    for place in (PurePosixPath(folder), *PurePosixPath(folder).parents):
        state = folders.lstat(str(place))
        if not state or state.st_uid != os.geteuid() or (state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX):
            raise Failure(
                f"the folder {place} is not root's, or others can replace the homes in it",
                f"make root its owner ({folder}: on its server), with mode 0755 (or 1777, with which users make their "
                "homes); then run up again",
            )


def prepare_share(step: Step, path: str) -> None:
    """Make the folders above the homes. They belong to root, so no other account can replace a home."""
    if files.exists(path) and files.owner_of(path) != "root":
        raise Failure(
            f"the share's folder {path} does not belong to root, so its owner could replace a user's home",
            f"run 'chown root:root {path}' on {step.host}, or write another folder in tailrack:storage.path; then run "
            "up again",
        )
    files.make_folder(path)
    files.make_folder(f"{path}/home")
    # Like /tmp: every user may add files, and only remove their own.
    files.make_folder(f"{path}/scratch", 0o1777)


def _ensure_home(account: Account, folder: str, elsewhere: bool) -> bool:
    """Make a home that is missing, and the user's key in it. Return whether the user has a home."""
    name, home = account.name, f"{folder}/{account.name}"
    try:
        state = folders.lstat(home)
        if state and elsewhere and (state.st_uid != account.uid or not stat.S_ISDIR(state.st_mode)):
            return False
        present = state is not None
    except PermissionError:
        present = owns_folder(name, home, HOME_LIMIT)
    if not present:
        if not _make_home(account, folder, elsewhere):
            return False
        note(f"created {home}")
    accounts.try_in_home(name, home, _OWN_KEY, f"could not create the key of {name}: check {home}/.ssh")
    return True


def _make_home(account: Account, folder: str, elsewhere: bool) -> bool:
    """Make a home under another name and rename it, so that it appears whole and belongs to its user.

    On another server, where root may have no rights, the user tries first. Return False if root may not make it either.
    """
    name, home, new = account.name, f"{folder}/{account.name}", f"{folder}/{account.name}.new"
    if elsewhere and in_home(name, folder, _OWN_HOME).ok:
        return True
    try:
        files.remove_folder(new)
        files.make_folder(new, 0o700, account.uid, account.gid)
        if not in_home(name, new, "cp -rT /etc/skel .").ok:
            raise Failure(f"{name} cannot write to {new}")
        files.rename(new, home)
    except (Failure, OSError):
        if not elsewhere:
            raise
        # A server may let root make a folder that root cannot give away.
        with suppress(Failure, OSError):
            files.remove_folder(new)
        return False
    return True


def _forget_keys(name: str, home: str) -> None:
    """Remove the keys and jobs of a former user. Phase `machine` has closed the account. Other files stay."""
    # A server may refuse root; the commands run as the user.
    with suppress(PermissionError):
        if folders.kind_of(home) != stat.S_IFDIR:
            return
    accounts.try_in_home(name, home, _NO_KEYS, f"could not remove the keys of {name} from {home}/.ssh")
    if exists("scancel") and not slurm.end("-u", name):
        note(f"could not cancel the jobs of {name}")


def leave(step: Step) -> None:
    """Remove the accounts, then the groups that are left: userdel removes most of them."""
    for name in made_here():
        if user_named(name):
            _forget(name)
    for name in files.lines(GROUPS_MADE):
        if group_named(name) and not attempt("groupdel", name).ok:
            note(f"group {name} stays: it has other members")


def end_sessions() -> None:
    """End the processes of the users whose accounts tailrack created."""
    for name in made_here():
        attempt("pkill", "-KILL", "-u", name, quiet=True)


def _forget(name: str) -> None:
    if exists("crontab") and succeeds("crontab", "-u", name, "-l"):
        attempt("crontab", "-u", name, "-r")
    files.remove(f"/var/lib/systemd/linger/{name}")
    for _ in range(_TRIES):
        if attempt("userdel", name).ok:
            return
        # A process may have started in between.
        end_sessions()
        time.sleep(0.5)
    note(f"account {name} stays: it still has processes")
