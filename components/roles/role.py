"""A role: one capability of a machine, as a plain value. A role is not a resource.

A role's folder, in the folder of its subject, contains `settings.py` (its section of the config, if it has one),
`role.py` (a function `role` from the settings to this value; a short one is in order.py), `host.py` (its phases, see
composition.py) and its templates.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from components.node.minute import Task
from components.roles.facts import Reader
from components.roles.program import command_line

FOLDER = Path(__file__).parent
_USES = re.compile(r"^# uses: (\S+)$", re.MULTILINE)
# No autoescape: these are configuration files, not web pages.
_ENVIRONMENT = Environment(  # noqa: S701
    loader=PackageLoader("components", package_path=""),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
)

Word = str | int
# A value for a phase: a word, a list of words or a table.
Value = Word | bool | None | Sequence[Word] | Sequence[Sequence[Word]]


@dataclass(frozen=True)
class File:
    """A file that is the same on all machines. `mode` and `owner` have the form that chmod and chown take.

    needs   the name of a value: a machine on which it is 0 or empty does not have the file. It is the file's text if
            that is empty
    """

    path: str
    text: str = ""
    mode: str = "0644"
    owner: str = "root:root"
    needs: str = ""


@dataclass(frozen=True)
class SlurmKey:
    """A key of slurm.conf that a role needs.

    value    the key's value; for a key in JOINED, an addition to it
    breaks   the damage that another value would do, for users who set the key in the config
    """

    value: str
    breaks: str


# Used instead of an account's name: the account that systemd makes for DynamicUser=, the kernel, and every user.
DYNAMIC, KERNEL, USERS = "dynamic", "kernel", "users"


@dataclass(frozen=True)
class Holder:
    """The account that listens at a port of the cluster. Only this account and root may bind the port.

    account     its name, or DYNAMIC, KERNEL or USERS
    head_alone  the daemon runs only on the head node, and jobs on other nodes may use the port
    private     users' processes on the cluster's machines cannot connect to it
    """

    account: str = "root"
    head_alone: bool = False
    private: bool = False


# Keys with a comma-separated list as value: every role and the user may add to it.
JOINED = frozenset(
    {
        *("CommunicationParameters", "DebugFlags", "LaunchParameters"),
        *("PrologFlags", "PropagateResourceLimitsExcept", "SchedulerParameters"),
    }
)


@dataclass(frozen=True, eq=False)
class Role:
    """The things that a role adds to a machine. Roles compare by identity, so that they can be keys.

    name        its folder
    after       roles that a machine must have before it has this one, by name
    packages    Debian packages by phase, in one transaction with those of the step's other roles
    wanted      packages by phase that a distribution may lack, in one transaction per role. A failure is logged and
                stops nothing; the role's phases check which packages are installed
    files       files by phase; written before the phase, which finds `step.changed` set if a file changed. In main
                steps, files that are no longer declared are removed, and their units with them
    only_where  paths by phase, for a phase that only undoes what a former config made: a machine that has none of the
                paths does not even load its module
    made        what its programs make, by phase of a main step, in the form of node/declared.py; removed like files
    values      values by name: `lines` of the role users is the parameter `users_lines` of a phase, also in its JSON
    secrets     secret values; any step may read them
    texts       values that are the same in every cluster, such as programs; they are part of the plans
    facts       readers of the facts that its phases report (`step.result`), by phase
    slurm_conf  keys of slurm.conf that it needs
    ports       TCP ports and ranges of its daemons, closed on all interfaces except the tailnet's
    fabric_ports  TCP ports on which its daemons listen on the proven fabric; open on all interfaces
    udp_ports   UDP ports, likewise
    holders     the account that listens at each port or range of `ports`; root by default
    serves      ports and ranges that other members of the cluster connect to; the tailnet's policy must allow them
    scrape      ports with metrics on each machine that has the role, by the name of the job
    tasks       programs that the machine runs again and again, by the phase of a main step that installs them
    state       files and folders of the head node that a backup must contain
    on_pods     phases for other machines that pods run too; those that begin with `pod` are for pods only
    modules     the modules of its folder whose functions are its phases
    only        the phases in which it takes part, None for all (composition.on_pods)
    """

    name: str
    after: tuple[str, ...] = ()
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wanted: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, tuple[File, ...]] = field(default_factory=dict)
    only_where: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    made: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Reader]] = field(default_factory=dict)
    slurm_conf: Mapping[str, SlurmKey] = field(default_factory=dict)
    ports: tuple[str, ...] = ()
    fabric_ports: tuple[str, ...] = ()
    udp_ports: tuple[str, ...] = ()
    holders: Mapping[str, Holder] = field(default_factory=dict)
    serves: tuple[str, ...] = ()
    scrape: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, tuple[Task, ...]] = field(default_factory=dict)
    state: tuple[str, ...] = ()
    on_pods: tuple[str, ...] = ()
    modules: tuple[str, ...] = ("host",)
    only: frozenset[str] | None = None

    def __post_init__(self) -> None:
        for field_name in ("values", "secrets", "texts"):
            given: Mapping[str, Any] = getattr(self, field_name)
            own = f"{self.name}_"
            full = {key if key.startswith(own) else own + key: value for key, value in given.items()}
            object.__setattr__(self, field_name, full)

    def takes(self, phase: str) -> bool:
        """Return whether it may take part in a phase."""
        return self.only is None or phase in self.only


@cache
def folder_of(role: str) -> Path:
    """Return a role's folder. A role without one, such as fio, has only packages."""
    return next(FOLDER.glob(f"*/{role}"), FOLDER / role)


def template(role: str, name: str) -> str:
    """Return the text of a file in a role's folder of templates, without its last newline.

    A line `# uses: <role>/<file>` of a program becomes that bash, and `# uses: as_user` the function as_user, which
    runs a program as another account (node/accounts.py).
    """
    text = (folder_of(role) / "templates" / name).read_text(encoding="utf-8").removesuffix("\n")
    return _USES.sub(lambda line: _bash(line[1]), text)


def render(path: str, **values: Any) -> str:
    """Return the rendered Jinja template. Raises jinja2.UndefinedError for a missing value.

    path   starts in components/
    """
    return _ENVIRONMENT.get_template(path).render(**values)


def unit(role: str, name: str, source: str = "", **values: str) -> File:
    """Return a unit of systemd whose text is in a role's folder of templates, with values for its @WORDS@.

    source   the template, if it does not have the unit's name
    """
    text = template(role, source or name)
    for word, value in values.items():
        text = text.replace(f"@{word.upper()}@", value)
    return File(f"/etc/systemd/system/{name}", text)


def unit_like(kind: str, name: str, **values: str) -> File:
    """Return a unit whose text is a template that roles share (machine/templates)."""
    return unit("machine", name, f"{kind}.{name.rpartition('.')[2]}", **values)


def _bash(name: str) -> str:
    if name == "as_user":
        return f'as_user() {{ {command_line("as-user")} "$@"; }}'
    (path,) = FOLDER.glob(f"*/{name}.sh")
    return path.read_text(encoding="utf-8").removeprefix("#!/bin/bash\n").removesuffix("\n")


def header_of(roles: Iterable[Role]) -> dict[str, Any]:
    """Return the header values of all roles together."""
    return {name: value for role in roles for name, value in role.values.items()}


def secrets_of(roles: Iterable[Role]) -> dict[str, str]:
    """Return the secrets of all roles together, by header name."""
    return {name: text for role in roles for name, text in role.secrets.items()}
