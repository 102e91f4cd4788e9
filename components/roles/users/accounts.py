"""The accounts of the cluster's users on a machine, and the records of those that tailrack created there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.node import files
from components.node.accounts import as_user
from components.node.log import note
from components.node.run import Ended
from components.node.step.step import STATE_DIR

# Accounts and groups that tailrack created on this machine, one name per line.
MADE = f"{STATE_DIR}/users"
GROUPS_MADE = f"{STATE_DIR}/groups"
# Seconds for the commands in one home.
HOME_LIMIT = 30
# Characters of what commands in a home may say.
_MOST_OUTPUT = 65536


@dataclass(frozen=True)
class Account:
    """A user of the cluster: the same name and numbers on every machine."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class UsersValues:
    """The cluster's users, where the share is mounted, and where the head node has it (a node has no such folder)."""

    users_lines: list[Account]
    nfs_exports_mount: str
    nfs_exports_path: str

    def home_on_share(self, name: str) -> str:
        """Return the path of a home on the head node."""
        return f"{self.nfs_exports_path}/home/{name}"

    def home(self, name: str) -> str:
        """Return the path of a home where users work."""
        return f"{self.nfs_exports_mount}/home/{name}"


def made_here() -> list[str]:
    """Return the names of the accounts that tailrack created on this machine."""
    return files.lines(MADE)


def gone(users: Sequence[Account]) -> list[str]:
    """Return the accounts that were created here and whose users are no longer in the config."""
    return [name for name in made_here() if name not in {user.name for user in users}]


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
