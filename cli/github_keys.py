"""`make github-keys`: show the SSH keys of users at GitHub, ask, and record them in the stack's config.

The person who controls a user's account at GitHub decides which keys GitHub shows. So the program records keys only
after a yes, `up` uses only recorded ones, and a later change at GitHub has no effect until someone runs this again.
"""

import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from cli.open_stack import confirmed, say
from cli.output.make_command import Make
from cli.output.ssh_key import described
from cli.output.terminal import one_line
from cli.pulumi.workspace import CliError
from cli.stack_config.edit import write_section
from cli.stack_config.stack_file import read_stack_file
from components.roles.access.users.settings import is_github_name
from components.settings.problems import shown
from components.settings.ssh_keys import UsersKey
from stacks.http_client import ApiError, call

GITHUB = "https://github.com"
LIMIT = 15  # seconds for each user
MOST_BYTES, MOST_KEYS = 65536, 32  # of each user

_SECTION = "tailrack:github_keys"
_KEY: TypeAdapter[str] = TypeAdapter(UsersKey)


@dataclass(frozen=True)
class Account:
    """A user's account at GitHub, and its keys: `recorded` in the config, and `present` at GitHub now.

    left_out   lines of GitHub's answer with keys that sshd would not accept, each with the reason
    error      why GitHub's keys are unknown; empty if they are known
    """

    user: str
    name: str
    recorded: tuple[str, ...] | None
    present: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    error: str = ""

    @property
    def changed(self) -> bool:
        """Return whether the config must change. Comments do not matter."""
        if self.error or (self.recorded is None and not self.present):
            return False
        return self.recorded is None or {*map(_comparable, self.recorded)} != {*map(_comparable, self.present)}


def github_keys(path: Path, console: Console, make: Make, interactive: bool) -> int:
    """Show the keys of all users with `github` in a stack's file, ask, and write those that changed.

    interactive   whether a person can answer; otherwise no key is recorded. Returns the exit status.
    """
    config = read_stack_file(path)["config"]
    accounts = [_read(account) for account in _accounts(config)]
    if not accounts:
        say(console, f"No user in {path.name} has a GitHub account: write github: NAME at a user of tailrack:users.")
        return 0
    for account in accounts:
        for line in _lines(account):
            say(console, one_line(line))
    changed = [account for account in accounts if account.changed]
    complete = all(not account.error and (account.changed or account.recorded is not None) for account in accounts)
    if not changed:
        if complete:
            say(console, f"{path.name} has these keys.")
        return 0 if complete else 1
    say(console, "Ask each user whether the fingerprints are right ('ssh-keygen -lf ~/.ssh/id_ed25519.pub').")
    names = ", ".join(account.user for account in changed)
    if not confirmed(console, f"Record the changed keys of {names}?", interactive):
        return 1
    write_section(path, _SECTION, {account.name: [*account.present] for account in changed}, "the keys")
    say(console, f"Recorded in {path.name}. Users can log in with them after {make('up')}.")
    return 0 if complete else 1


def _accounts(config: Mapping[str, Any]) -> Iterator[Account]:
    """Give the accounts of an unchecked config. Raises CliError for a name that GitHub cannot have."""
    users, recorded = config.get("tailrack:users"), config.get(_SECTION)
    for index, user in enumerate(users if isinstance(users, list) else ()):
        if not isinstance(user, dict) or (name := user.get("github")) is None:
            continue
        if not isinstance(name, str) or not is_github_name(name):
            problem = f"tailrack:users[{index}].github: {shown(name)} is not a GitHub name"
            raise CliError(f"{problem}; write the name as in the address of the profile, such as ada-l")
        keys = recorded.get(name) if isinstance(recorded, dict) else None
        texts = tuple(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else None
        yield Account(str(user.get("name")), name, texts)


def _read(account: Account) -> Account:
    """Return the account with its keys at GitHub."""
    present, left_out = [], []
    try:
        url = f"{GITHUB}/{urllib.parse.quote(account.name, safe='')}.keys"
        # A redirect could lead to another account's keys; `call` follows none.
        answer = call("GET", url, {"Accept": "text/plain"}, name="GitHub", seconds=LIMIT, most=MOST_BYTES)
        lines = [line for line in answer.decode("ascii").splitlines() if line.strip()]
        if len(lines) > MOST_KEYS:
            raise ValueError(f"GitHub shows more than {MOST_KEYS} keys")
    except ApiError as error:
        if error.status < 300:
            return replace(account, error=f"cannot read the keys: {error}")
        problem = "has no such account" if error.status == 404 else f"answers with status {error.status}"
        return replace(account, error=f"GitHub {problem}")
    except ValueError as error:
        return replace(account, error=f"cannot read the keys: {error}")
    for line in lines:
        key = " ".join(line.split()[:2])
        try:
            # The comment says where the key is from; GitHub sends none.
            present.append(_KEY.validate_python(f"{key} github.com/{account.name}"))
        except ValidationError as error:
            context = error.errors(include_url=False)[0].get("ctx", {})
            left_out.append(f"{line.split()[0][:40]} {context.get('problem', 'is too long')}")
    return replace(account, present=tuple(dict.fromkeys(present)), left_out=tuple(left_out))


def _lines(account: Account) -> Iterator[str]:
    """Give a line per key: `+` new, `-` no longer at GitHub, a space if it is recorded."""
    where = f"{account.user} (github.com/{account.name})"
    if account.error:
        yield f"! {where}: {account.error}"
        return
    if not account.present:
        yield f"! {where}: GitHub shows no key that sshd accepts"
    recorded = {_comparable(key): key for key in account.recorded or ()}
    present = {_comparable(key): key for key in account.present}
    for comparable, key in {**recorded, **present}.items():
        sign = " " if comparable in recorded.keys() & present.keys() else "+" if comparable in present else "-"
        yield f"{sign} {where}: {described(key)}"
    for line in account.left_out:
        yield f"! {where}: left out: {line}"


def _comparable(key: str) -> Sequence[str]:
    """Return a key without its comment."""
    return tuple(key.split()[:2])
