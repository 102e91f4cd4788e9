"""The cluster's accounts on a machine: make and close them, find clashes with others, and remove unused ones.

An account whose uid changes in the config is created again if it is unused: another machine may have refused the first
uid, after this one had already accepted it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from components.node import files
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.passwd import group_named, group_with, user_named, user_with
from components.node.run import Ended, attempt, run

# Accounts and groups that tailrack created on this machine, one name per line.
MADE = f"{STATE_DIR}/users"
GROUPS_MADE = f"{STATE_DIR}/groups"
# Seconds for the commands in one home.
HOME_LIMIT = 30
# Characters of what commands in a home may say.
_MOST_OUTPUT = 65536
# The first uid to offer, and the last.
_FREE = range(6001, 10000)
# Compare the home with a new one: a login leaves a history, and a key of the user's own changes the list of keys.
_HOME_IS_NEW = r"""diff -rq --no-dereference -x .ssh /etc/skel . >/dev/null &&
cmp -s .ssh/authorized_keys .ssh/id_ed25519.pub &&
[ "$(ls -A .ssh)" = "$(printf "%s\n" authorized_keys id_ed25519 id_ed25519.pub)" ]"""
# pgrep's status if no process matches.
_NONE = 1


@dataclass(frozen=True)
class Account:
    """A user of the cluster: the same name and numbers on every machine."""

    name: str
    uid: int
    gid: int


def homes_of(elsewhere: str, share: str) -> str:
    """Return the folder of the homes: on another server, or without one on the share."""
    return elsewhere or f"{share}/home"


@dataclass(frozen=True)
class UsersValues:
    """The cluster's users, where the share is mounted, and where the head node has it (a node has no such folder).

    users_homes   the folder of the homes; empty if they are on the share
    """

    users_lines: list[Account]
    share_mount: str
    share_path: str
    users_homes: str

    def home_on_share(self, name: str) -> str:
        """Return the path of a home on the head node."""
        return f"{self.share_path}/home/{name}"

    def home(self, name: str) -> str:
        """Return the path of a home where users work."""
        return f"{homes_of(self.users_homes, self.share_mount)}/{name}"


def made_here() -> list[str]:
    """Return the names of the accounts that tailrack created on this machine."""
    return files.lines(MADE)


def gone(users: Sequence[Account]) -> list[str]:
    """Return the accounts that were created here and whose users are no longer in the config."""
    return [name for name in made_here() if name not in {user.name for user in users}]


def ensure(account: Account, values: UsersValues) -> None:
    """Create an account and its group as the config has them; one that was closed is open again."""
    name = account.name
    there = user_named(name)
    if there and there.pw_uid != account.uid:
        remove_unused(name, values.home_on_share(name))
        there = None
    # Record a name before it is created: only recorded accounts and groups are ever closed or removed.
    if not group_with(account.gid):
        files.add_line(GROUPS_MADE, name)
        run("groupadd", "-g", str(account.gid), name)
    if not there:
        files.add_line(MADE, name)
        # Password '*' matches no password, but does not lock the account, so keys work.
        numbers = ("-u", str(account.uid), "-g", str(account.gid))
        run("useradd", "-M", "-d", values.home(name), "-s", "/bin/bash", *numbers, "-p", "*", name)
        note(f"created user {name} ({account.uid})")
    elif name in made_here():
        run("usermod", "-e", "", name)
        home = values.home(name)
        if there.pw_dir != home and not attempt("usermod", "-d", home, name).ok:
            remedy = f"end them ('pkill -u {name}' on this machine), then run up again"
            raise Failure(f"the home of {name} cannot change to {home} while {name} has processes", remedy)


def close(name: str) -> None:
    """Close an account. An expired one refuses every login, also by key. Its files stay, and no other gets its uid."""
    if not user_named(name):
        return
    run("usermod", "-e", "1", name)
    if not attempt("pkill", "-KILL", "-u", name).ok:
        note(f"{name} has no process here")
    note(f"closed the account of {name}")


def in_home(name: str, home: str, commands: str) -> Ended:
    """Run bash commands in a user's home as that user: root opens, writes and owns nothing there.

    The user may have put a link, a FIFO or a folder where a file is expected. So there is a time limit, and a failure
    concerns only that user.
    """
    bash = ("bash", "--norc", "--noprofile", "-euc", f'cd "$HOME"; {commands}')
    environment = {"HOME": files.on_disk(home), "PATH": "/usr/bin:/bin"}
    return as_user(name, *bash, limit=HOME_LIMIT, most=_MOST_OUTPUT, environment=environment)


def try_in_home(name: str, home: str, commands: str, problem: str) -> None:
    """Run commands in a home, and log a problem if they fail."""
    if not in_home(name, home, commands).ok:
        note(problem)


def refuse_clashes(values: UsersValues, host: str) -> None:
    """Raise Failure if an account of the machine conflicts with a user of the cluster."""
    clashes = [clash for account in values.users_lines for clash in _clashes(account, values)]
    if clashes:
        raise Failure(
            "; ".join(clashes),
            f"choose other uids in tailrack:users (from {_free_uid(values)} up, which is free on {host}) or other "
            f"names, because a user of the cluster cannot be an account that {host} already has; or remove or renumber "
            f"('usermod -u') these accounts on {host}",
        )


def _clashes(account: Account, values: UsersValues) -> Iterator[str]:
    """Yield the conflicts of one user.

    An account with the right numbers and another home belongs to someone else: its jobs would start in a folder that
    other machines do not have.
    """
    name, uid = account.name, account.uid
    holder = user_with(uid)
    if holder and holder.pw_name != name:
        yield f"uid {uid} is {holder.pw_name} here and should be {name}"
    found = user_named(name)
    if found is None:
        return
    ours = name in made_here()
    if found.pw_uid != uid:
        if not (ours and is_unused(name, values)):
            yield f"user {name} has uid {found.pw_uid} here and should have {uid}"
    elif ours:
        return
    elif found.pw_gid != account.gid:
        yield f"user {name} has gid {found.pw_gid} here and should have {account.gid}"
    elif found.pw_dir not in ("", home := values.home(name)):
        yield f"user {name} is an existing account here, with the home {found.pw_dir}, and should have {home}"


def _free_uid(values: UsersValues) -> int:
    """Return the first number that no account or group of this machine or of the config has."""
    taken = {number for user in values.users_lines for number in (user.uid, user.gid)}
    free = (uid for uid in _FREE if uid not in taken and not user_with(uid) and not group_with(uid))
    return next(free, _FREE[-1])


def is_unused(name: str, values: UsersValues) -> bool:
    """Return whether no process runs under an account, and its home, if this machine has it, is as tailrack made it.

    A home on another server must not exist: its mount may hang, and refuse root, so it is neither compared nor removed.
    """
    if attempt("pgrep", "-u", name).status != _NONE:
        return False
    if values.users_homes:
        state = as_user(name, "stat", "--", files.on_disk(values.home(name)), limit=HOME_LIMIT)
        if "No such file" not in state.errors:
            return False
    home = values.home_on_share(name)
    return not files.is_folder(home) or in_home(name, home, _HOME_IS_NEW).ok


def remove_unused(name: str, home: str) -> None:
    """Remove an unused account, its group and its home. Other phases create them with the new numbers."""
    # Each step imports this module for its lists of users.
    from components.roles.containers.enroot_pyxis.enroot import remove_files_of

    # tailrack's files alone are in that home, and the folder that contains it belongs to root.
    files.remove_folder(home)
    remove_files_of(name)
    run("userdel", name)
    if name in files.lines(GROUPS_MADE) and group_named(name):
        run("groupdel", name)
    note(f"removed the unused account {name}, whose uid changes")
