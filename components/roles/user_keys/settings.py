"""Keys of users that are recorded from GitHub, and checks for missing ones and for keys of two users."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report, child_path
from components.settings.section import key
from components.settings.ssh_keys import UsersKey
from components.settings.types import refuse

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


def check_github_keys(config: Draft, report: Report) -> None:
    """Report users without recorded keys, accounts and keys of two users, and warn about accounts that no user has."""
    users, path = config.items("users"), config.path_of("github_keys")
    written = config.value("github_keys")
    if not isinstance(written, dict):
        return
    owners = {key: place for user in users for key, place in _own_keys(user)}
    names: dict[str, str] = {}
    for user in users:
        name, place = user.value("github"), user.path.removeprefix(ROOT)
        if not isinstance(name, str):
            continue
        # GitHub ignores case.
        if (other := names.setdefault(name.lower(), place)) != place:
            problem = f"{report.value(user.path_of('github'), name)} is also the account of {other}"
            report.add(user.path_of("github"), problem, "one key would open two accounts", "give each user another")
        elif name not in written:
            problem = f"the keys of {report.value(user.path_of('github'), name)} are not in tailrack:github_keys"
            report.add(user.path_of("github"), problem, "the user could not log in with them", _COMMAND)
        for index, text in enumerate(written.get(name, ())):
            key_path = child_path(child_path(path, name), index)
            if not (other := owners.setdefault(_comparable(text), place)).startswith(place):
                problem = f"{report.value(key_path, text)} is also a key of {other.partition('.')[0]}"
                breaks = "no one could tell whose login it is, and a removed key could still open an account"
                report.add(key_path, problem, breaks, "give each user another key")
    for name in written.keys() - {user.value("github") for user in users}:
        report.warn(child_path(path, name), "has no effect, because no user has it as github; remove it")


def _own_keys(user: Draft) -> Sequence[tuple[tuple[str, ...], str]]:
    written, path = user.value("keys"), user.path_of("keys")
    texts = written if isinstance(written, tuple) else ()
    return [(_comparable(text), child_path(path, index).removeprefix(ROOT)) for index, text in enumerate(texts)]


def _comparable(text: str) -> tuple[str, ...]:
    """Return a key without its comment."""
    return tuple(text.split()[:2])
