"""Compose a step from the phases of its roles.

A phase of a role is a file in its folder: `<phase>.py` with a function `<phase>`, or, where bash is the right tool,
`<phase>.sh` with a function `<role>_<phase>`. A step runs its phases, role after role. To undo, it goes through the
roles in reverse: first it runs every `release` (`<role>_<phase>_release` in bash), which may still use the other roles'
work, then every `forget`. To leave the cluster, a machine runs the phase `leave` of all roles in reverse.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

from components.node.step.values import names
from components.node.step.work import Call
from components.roles.facts import Reader
from components.roles.role import FOLDER, Role
from components.steps.results import Answer

SCRIPTS = Path(__file__).parent
# These files come first in every step.
SHARED = ("base", "as_user", "folders", "proxy", "fetch", "packages")

# The phases of each step. head_node.py and compute_node.py say which machines run which steps.
CHECK = ("check", "check_head")
CHECK_OF_NODE = ("check", "check_node")
JOIN = ("restore", "join")
JOIN_OF_NODE = ("join", "check_path")
HEAD = ("machine", "head")
COMPUTING_HEAD = ("machine", "head", "compute")
REGISTER = ("register",)
POOL = ("pool",)
NODE = ("machine", "node", "compute")
SERVICES = ("services",)
NODE_SERVICES = ("node_services",)
LEAVE = ("leave",)

# The actions of a step.
_ACTIONS = ("up", "down", "recall")
# The last three come from /etc/os-release.
_SHELL_VARIABLES = frozenset(
    {"BASHPID", "BASH_REMATCH", "EUID", "PATH", "HOME", "SECONDS", "RANDOM", "ID", "VERSION_ID", "VERSION_CODENAME"}
)
_READ = re.compile(r"(?<!\\)\$\{?[#!]?([A-Z][A-Z0-9_]+)")
_SET = re.compile(r"(?:^|[\s(;&|!])(?:local |declare |export )?([A-Z][A-Z0-9_]+)(?:=|\+=)", re.MULTILINE)
# Values that every step has.
_OWN = frozenset({"HOST_NAME", "STEP_NAME", "STEP_REPAIR", "ANSWER"})
_USES = re.compile(r"^# uses: (.+)$", re.MULTILINE)
_FUNCTION = re.compile(r"^(\w+)\(\)", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Script:
    """The work of a step, without its values (components/node/step/work.py).

    calls   the calls of its actions: `up`, and perhaps `down` or `recall`
    bash    the functions of its bash phases
    shell   the names of the values that these read: all upper-case variables that they do not set
    phases  the names of the values that its phases in Python read
    texts   values that are the same in every cluster
    """

    calls: Mapping[str, tuple[Call, ...]]
    bash: str = ""
    shell: frozenset[str] = frozenset()
    phases: frozenset[str] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def reads(self) -> frozenset[str]:
        """Return the names of the values that it needs."""
        return (self.shell | self.phases).difference(self.texts)

    @property
    def undo(self) -> bool:
        """Return whether it has a `down`."""
        return "down" in self.calls

    @cached_property
    def file(self) -> str:
        """Return the text of the file on a machine, one line of JSON."""
        plan = {"calls": self.calls, "bash": self.bash, "reads": sorted(self.shell), "texts": dict(self.texts)}
        return json.dumps(plan, sort_keys=True, ensure_ascii=False)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of that file, in hexadecimal."""
        return hashlib.sha256(self.file.encode()).hexdigest()

    def with_texts(self, texts: Mapping[str, str]) -> Script:
        """Return the script with these values in it, by name."""
        return replace(self, texts={**self.texts, **texts})


def compose(
    roles: Sequence[Role],
    phases: Sequence[str],
    *,
    leaves: bool = False,
    ahead: Sequence[str] = (),
    next_phases: Sequence[str] = (),
) -> Script:
    """Return the script that runs phases of roles on a machine.

    ahead         phases of a later step. Their packages are installed at the end of this one, while that step waits
    next_phases   phases of the next step. The package lists for it are read in the background
    leaves        `down` runs the phase `leave` of every role in reverse; otherwise it runs the `_release` and `_forget`
                  functions of its own phases
    """
    return _composed(tuple(roles), tuple(phases), leaves, tuple(ahead), tuple(next_phases))


# Thousands of nodes have the same scripts.
@lru_cache
def _composed(
    roles: tuple[Role, ...], phases: tuple[str, ...], leaves: bool, ahead: tuple[str, ...], next_phases: tuple[str, ...]
) -> Script:
    found = _Parts(roles, phases)
    parts, call = found.parts, found.calls
    if phases[0] == CHECK[0]:
        # If the first check fails, the others would fail too. The problems of the others are reported together.
        first, *others = (check for role, phase in parts for check in call(role, phase))
        up: list[Call] = [first, ("checks", *others)]
        found.functions.add(["machine/checks"])
    else:
        up = [*_packages(parts), *_wanted(parts)]
        for role, phase in parts:
            up += [*_files(role, phase), *call(role, phase)]
    # At the end: a package such as munge must not be installed before its role has written its files.
    later = _packages((role, phase) for role in roles for phase in ahead)
    lists = _packages((role, phase) for role in roles for phase in (*ahead, *next_phases))
    up = [
        *(("begin_lists", *packages) for _, *packages in lists),
        *(("remember_ahead", *packages) for _, *packages in later),
        *up,
        *later,
    ]
    if leaves:
        down = [undo for role in reversed(roles) for undo in call(role, "leave")]
    else:
        down = [
            undo
            for part in ("release", "forget")
            for role, phase in reversed(parts)
            for undo in call(role, phase, part)
        ]
    return found.script({"up": tuple(up), **({"down": tuple(down)} if down else {})})


class _Parts:
    """The phases that roles have, in bash and in Python, as far as they are asked for.

    parts   the roles that have something to do in these phases, with the phase
    """

    def __init__(self, roles: Sequence[Role], phases: Sequence[str]) -> None:
        self._roles = roles
        self.parts = [(role, phase) for role in roles for phase in phases if _takes_part(role, phase)]
        self.functions = Functions(f"{role.name}/{phase}" for role, phase in self.parts if _script(role, phase))
        self._phases: list[Callable[..., None]] = []
        # Files of bash whose functions phases in Python call.
        self._called: list[str] = []

    def calls(self, role: Role, phase: str, part: str = "") -> Iterator[Call]:
        """Yield the call of a phase, or of its part `release` or `forget`; nothing if the role has none."""
        if _script(role, phase):
            self.functions.add([f"{role.name}/{phase}"])
        name = f"{role.name}_{phase}_{part}" if part else f"{role.name}_{phase}"
        module = _module(role, phase)
        if self.functions.has(name):
            yield ("bash", name)
        elif module and (function := getattr(importlib.import_module(module), part or phase, None)):
            self._phases.append(function)
            self._called += getattr(importlib.import_module(module), "BASH", ())
            yield ("python", module, part or phase)

    def script(self, calls: Mapping[str, tuple[Call, ...]]) -> Script:
        """Return the script of these calls."""
        self.functions.add(self._called)
        in_bash = self._called or any(_in_bash(call) for one in calls.values() for call in one)
        bash = self.functions if in_bash else Functions([], "", ())
        texts = {name: text for role in self._roles for name, text in role.texts.items()}
        reads = bash.reads - _OWN
        values = frozenset[str]().union(*map(names, self._phases))
        return Script(calls, bash.text, reads, values, {name: texts[name] for name in texts.keys() & (reads | values)})


def _in_bash(call: Call) -> bool:
    kind, *rest = call
    return kind == "bash" or (kind == "checks" and any(map(_in_bash, rest)))


def answer(roles: Sequence[Role], phases: Sequence[str]) -> Answer:
    """Return the answer that a step of these phases has to print: the facts of its roles.

    Raises ValueError if two roles report the same fact.
    """
    return _answer(tuple(roles), tuple(phases))


@lru_cache
def _answer(roles: tuple[Role, ...], phases: tuple[str, ...]) -> Answer:
    readers: dict[str, Reader] = {}
    for role in roles:
        role_readers = {name: read for phase in phases for name, read in role.facts.get(phase, {}).items()}
        for name in role_readers.keys() & readers.keys():
            raise ValueError(f"{name} is reported by role {role.name} and by another role")
        readers |= role_readers
    return Answer(readers)


def has_work(roles: Sequence[Role], phases: Sequence[str]) -> bool:
    """Return whether a role has a script, file or package for these phases."""
    return any(_takes_part(role, phase) for role in roles for phase in phases)


def leave_program(roles: Sequence[Role]) -> Script:
    """Return the plan that a node keeps for leaving: the phase `leave` of every role, in reverse."""
    return _leave_program(tuple(roles))


@lru_cache
def _leave_program(roles: tuple[Role, ...]) -> Script:
    parts = _Parts(roles, ["leave"])
    calls = [call for role in reversed(roles) for call in parts.calls(role, "leave")]
    alone = tuple(
        ("bash", "leave_alone", name) if kind == "bash" else (kind, name, *rest) for kind, name, *rest in calls
    )
    return parts.script({"leave": alone})


def expire_program(roles: Sequence[Role]) -> Script:
    """Return the plan of a head node that removes expired spot nodes (components/roles/slurm/expire.py).

    It sets NODE_NAME itself, and has no other value of a node. Raises ValueError if a role needs one to forget a node.
    """
    parts = _Parts(roles, REGISTER)
    forget = [call for role in reversed(roles) for call in parts.calls(role, *REGISTER, "forget")]
    expire = ("python", "components.roles.slurm.expire", "expire")
    plan = parts.script({"expire": (expire,), "forget": tuple(forget)})
    unknown = {name for name in plan.reads if name.startswith(("NODE_", "POOL_"))} - {"NODE_NAME"}
    if unknown & plan.phases:
        raise ValueError(f"a node must be forgotten by its name alone, without {', '.join(sorted(unknown))}")
    # The functions for other phases of its bash read more.
    return replace(plan, shell=plan.shell - unknown)


def again_program() -> Script:
    """Return the plan of a head node that repeats failed fabric proofs (components/roles/fabric/again.py)."""
    return Script({"fabric-again": (("python", "components.roles.fabric.again", "again"),)})


def single(home: Path | str) -> Script:
    """Return the step of one script file or one module: its functions `up`, and perhaps `down` and `recall`."""
    if isinstance(home, str):
        module = importlib.import_module(home)
        found = {name: getattr(module, name) for name in _ACTIONS if hasattr(module, name)}
        reads = frozenset[str]().union(*map(names, found.values()))
        return Script({name: (("python", home, name),) for name in found}, phases=reads)
    functions = Functions([], home.read_text(encoding="utf-8").removesuffix("\n"))
    calls = {name: (("bash", name),) for name in _ACTIONS if f"\n{name}() {{" in functions.text}
    return Script(calls, functions.text, functions.reads - _OWN)


def _script(role: Role, phase: str) -> bool:
    return (FOLDER / role.name / f"{phase}.sh").is_file()


def _module(role: Role, phase: str) -> str:
    """Return the module of a phase in Python; empty if it has none."""
    return f"components.roles.{role.name}.{phase}" if (FOLDER / role.name / f"{phase}.py").is_file() else ""


def _takes_part(role: Role, phase: str) -> bool:
    return bool(_script(role, phase) or _module(role, phase)) or any(
        phase in phases for phases in (role.files, role.packages, role.wanted)
    )


def _packages(parts: Iterable[tuple[Role, str]]) -> list[Call]:
    """Return one call, so that a step has one transaction; none without packages."""
    wanted = [package for role, phase in parts for package in role.packages.get(phase, ())]
    return [("packages", *dict.fromkeys(wanted))] if wanted else []


def _wanted(parts: Iterable[tuple[Role, str]]) -> list[Call]:
    """Return one call per role, whose transaction may fail."""
    return [("try_packages", *packages) for role, phase in parts if (packages := role.wanted.get(phase))]


def _files(role: Role, phase: str) -> list[Call]:
    rows = tuple((file.path, file.mode, file.owner, file.text) for file in role.files.get(phase, ()))
    return [("files", *rows)] if rows else []


class Functions:
    """The text of shared bash and of some files, each once, and after the files that it uses."""

    def __init__(self, names: Iterable[str], last: str = "", shared: Sequence[str] = SHARED) -> None:
        self._texts = dict[str, str]()
        self._homes = dict[str, str]()
        for name in shared:
            self._add_text(name, _body(SCRIPTS / f"{name}.sh"))
        self.add(names)
        self._last = [last] if last else []

    def add(self, names: Iterable[str]) -> None:
        """Add files, named `<role>/<file>`. Raises ValueError if two files have a function of the same name."""
        for name in names:
            if name not in self._texts:
                text = _body(FOLDER / f"{name}.sh")
                self.add(used for line in _USES.findall(text) for used in line.split())
                self._add_text(name, text)

    def _add_text(self, name: str, text: str) -> None:
        """Add a file's text. Two functions must not have the same name: bash would run the later one for both."""
        for function in _FUNCTION.findall(text):
            if (home := self._homes.setdefault(function, name)) != name:
                raise ValueError(f"{name}.sh has a function {function}, which {home}.sh has too: give it another name")
        self._texts[name] = text

    def has(self, function: str) -> bool:
        """Return whether one of the files has a function of this name."""
        return function in self._homes

    @property
    def text(self) -> str:
        return "\n".join([*self._texts.values(), *self._last])

    @property
    def reads(self) -> frozenset[str]:
        names = [_names(text) for text in (*self._texts.values(), *self._last)]
        return (
            frozenset().union(*(read for read, _ in names)).difference(_SHELL_VARIABLES, *(sets for _, sets in names))
        )


# Many scripts contain the same files.
@lru_cache
def _names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the upper-case variables that a text reads, and those that it sets."""
    return frozenset(_READ.findall(text)), frozenset(_SET.findall(text))


@lru_cache
def _body(path: Path) -> str:
    text = path.read_text(encoding="utf-8").removesuffix("\n")
    return text if path.parent == SCRIPTS else text.removeprefix("#!/bin/bash\n")
