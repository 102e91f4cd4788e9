"""Keys of users that are recorded from GitHub, and checks for missing ones and for keys of two users."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from components.settings.problems import ROOT, Report, child_path
from components.settings.section import key
from components.settings.ssh_keys import UsersKey
from components.settings.types import refuse

if TYPE_CHECKING:
    from components.roles.users.settings import User

# GitHub's rule: letters, digits and single hyphens inside. A company's own accounts end with `_` and its short code.
_NAME = re.compile(r"[A-Za-z0-9](-?[A-Za-z0-9])*(_[A-Za-z0-9]+)?", re.ASCII)
_LONGEST = 39
_COMMAND = "run: make github-keys STACK=..."


def is_github_name(text: str) -> bool:
    """Return whether GitHub has accounts of such a name."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


def _github_name(value: str) -> str:
    if not is_github_name(value):
        refuse("is not a GitHub name of at most 39 letters, digits and single hyphens")
    return value


GithubName = Annotated[str, Field(max_length=_LONGEST), AfterValidator(_github_name)]
GithubKeys = dict[GithubName, tuple[UsersKey, ...]]


def github_key() -> Any:
    """Return the key of a user that names the user's account at GitHub."""
    return key(
        "the user's account at GitHub. `make github-keys` reads its public SSH keys, asks, and records them in "
        "`tailrack:github_keys`; `up` reads nothing from GitHub",
        wants="a GitHub name",
        breaks="no keys could be read from there",
        fix="write the name as in the address of the profile, such as ada-l",
        default=None,
    )


def github_keys_key() -> Any:
    """Return the key that contains the recorded keys."""
    return key(
        "public SSH keys of users with `github`, by GitHub name; `make github-keys` writes them",
        wants="a mapping from a GitHub name to a list of public SSH keys",
        breaks="the user could not log in with it",
        fix=_COMMAND,
        default={},
    )


def check_github_keys(users: Sequence[User], written: Mapping[str, Sequence[str]], report: Report) -> None:
    """Report users without recorded keys, accounts and keys of two users, and warn about accounts that no user has."""
    path = child_path(ROOT, "github_keys")
    owners = {
        _comparable(text): report.at(user, "keys", index).removeprefix(ROOT)
        for user in users
        for index, text in enumerate(user.keys)
    }
    names: dict[str, str] = {}
    for user in users:
        name, place, github_path = user.github, report.at(user).removeprefix(ROOT), report.at(user, "github")
        if name is None:
            continue
        # GitHub ignores case.
        if (other := names.setdefault(name.lower(), place)) != place:
            problem = f"{report.value(github_path, name)} is also the account of {other}"
            report.add(github_path, problem, "one key would open two accounts", "give each user another")
        elif name not in written:
            problem = f"the keys of {report.value(github_path, name)} are not in tailrack:github_keys"
            report.add(github_path, problem, "the user could not log in with them", _COMMAND)
        for index, text in enumerate(written.get(name, ())):
            key_path = child_path(child_path(path, name), index)
            if not (other := owners.setdefault(_comparable(text), place)).startswith(place):
                problem = f"{report.value(key_path, text)} is also a key of {other.partition('.')[0]}"
                breaks = "no one could tell whose login it is, and a removed key could still open an account"
                report.add(key_path, problem, breaks, "give each user another key")
    for name in written.keys() - {user.github for user in users}:
        report.warn(child_path(path, name), "has no effect, because no user has it as github; remove it")


def _comparable(text: str) -> tuple[str, ...]:
    """Return a key without its comment."""
    return tuple(text.split()[:2])
