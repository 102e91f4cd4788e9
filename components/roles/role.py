"""What a role is: one capability of a machine, as a plain value. Never a resource of its own.

A role's folder holds `settings.py` (its section of the config, where it has one), `role.py` (a function `role` from the
cluster's settings to this value), its bash by phase (`<phase>.sh`, see steps/composition.py) and its templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.roles.facts import Reader

FOLDER = Path(__file__).parent
_USES = re.compile(r"^# uses: (\S+)$", re.MULTILINE)

Word = str | int
# What a script may be given: a word, a list of words, a table; the shell's text of it is made by steps/header.py alone.
Value = Word | bool | None | Sequence[Word] | Sequence[Sequence[Word]]


@dataclass(frozen=True)
class File:
    """A file that is the same on every machine that has it. `mode` and `owner` as chmod and chown take them."""

    path: str
    text: str
    mode: str = "0644"
    owner: str = "root:root"


@dataclass(frozen=True)
class SlurmKey:
    """A key of slurm.conf that a role needs.

    value    what it is set to; of a key in JOINED, what is added to it
    breaks   what another value would break, for whoever sets the key in the config
    """

    value: str
    breaks: str


# In the place of an account's name: the one that systemd makes for a unit with DynamicUser=; the kernel; every user.
DYNAMIC, KERNEL, USERS = "dynamic", "kernel", "users"


@dataclass(frozen=True)
class Holder:
    """An account that listens at a port of the cluster. No other account of the machine may bind it, but root.

    account     its name, or DYNAMIC, KERNEL or USERS
    head_alone  the daemon runs on the head node alone, and jobs on other nodes may listen there
    """

    account: str = "root"
    head_alone: bool = False


# Keys whose value is a list with commas between, to which every role and the user may add.
JOINED = frozenset(
    {"DebugFlags", "LaunchParameters", "PrologFlags", "PropagateResourceLimitsExcept", "SchedulerParameters"}
)


@dataclass(frozen=True, eq=False)
class Role:
    """What a role adds to a machine. Each is equal to itself alone, so that it can be a key.

    name        its folder
    after       roles that a machine must have before it has this one, by name
    packages    Debian packages by phase, in one transaction with those of the step's other roles
    wanted      packages by phase that may be missing: each role's in a transaction of their own, whose failure is said
                in the log and stops nothing. Its scripts see by what is there what they can do
    files       files by phase; written before the phase's own function, which finds CHANGED=yes where one was new
    values      header values by the name that scripts read: "USERS_LINES" for $USERS_LINES; each starts with the role's
                name
    secrets     like values, for what must never be seen; any step may read them
    texts       header values that are the same in every cluster, such as programs; they go with its scripts
    facts       what its phases report (`result NAME JSON` in its scripts), each with how it is read, by phase
    slurm_conf  keys of slurm.conf that it needs
    ports       TCP ports and ranges on which its daemons may listen, closed on every interface but the tailnet's
    udp_ports   the same of UDP
    holders     who listens at its ports, by port or range as in `ports`; root where it has none
    serves      ports and ranges that other members of the cluster reach over the tailnet; its policy has to let them
    scrape      ports that answer with metrics on each machine that has it, by the name of the job
    state       files and folders of the head node without which what it keeps there is lost: a backup has them
    """

    name: str
    after: tuple[str, ...] = ()
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wanted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, tuple[File, ...]] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Reader]] = field(default_factory=dict)
    slurm_conf: Mapping[str, SlurmKey] = field(default_factory=dict)
    ports: tuple[str, ...] = ()
    udp_ports: tuple[str, ...] = ()
    holders: Mapping[str, Holder] = field(default_factory=dict)
    serves: tuple[str, ...] = ()
    scrape: Mapping[str, int] = field(default_factory=dict)
    state: tuple[str, ...] = ()


def template(role: str, name: str) -> str:
    """Return the text of a file in a role's folder of templates, without its last newline.

    A line `# uses: <role>/<file>` of a program, or `# uses: <file>` of those that all steps share, becomes that bash.
    """
    text = (FOLDER / role / "templates" / name).read_text(encoding="utf-8").removesuffix("\n")
    return _USES.sub(lambda line: _bash(line[1]), text)


def _bash(name: str) -> str:
    path = (FOLDER if "/" in name else FOLDER.parent / "steps") / f"{name}.sh"
    return path.read_text(encoding="utf-8").removeprefix("#!/bin/bash\n").removesuffix("\n")


def header_of(roles: Iterable[Role]) -> dict[str, Any]:
    """Return the header values of all roles together."""
    return {name: value for role in roles for name, value in role.values.items()}


def secrets_of(roles: Iterable[Role]) -> dict[str, str]:
    """Return the secrets of all roles together, by header name."""
    return {name: text for role in roles for name, text in role.secrets.items()}
