"""Compose the script of a step from the phases of its roles.

A phase of a role is a file `<phase>.sh` in its folder, with a function `<role>_<phase>`. A step runs the functions of
its phases, role after role. To undo, it goes through the roles in reverse: first it runs every
`<role>_<phase>_release`, which may still use the other roles' work, then every `<role>_<phase>_forget`. To leave the
cluster, a machine runs the phase `leave` of all roles in reverse.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from components.roles.facts import Reader
from components.roles.role import FOLDER, Role, Value
from components.steps.header import header
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
EXPIRE = ("expire",)
AGAIN = ("again",)

# The last three come from /etc/os-release.
_SHELL_VARIABLES = frozenset(
    {"BASHPID", "BASH_REMATCH", "EUID", "PATH", "HOME", "SECONDS", "RANDOM", "ID", "VERSION_ID", "VERSION_CODENAME"}
)
_READ = re.compile(r"(?<!\\)\$\{?[#!]?([A-Z][A-Z0-9_]+)")
_SET = re.compile(r"(?:^|[\s(;&|!])(?:local |declare |export )?([A-Z][A-Z0-9_]+)(?:=|\+=)", re.MULTILINE)
# A person runs this program: print an error and continue with the rest.
_LEAVE_ALONE = "set +e"
_USES = re.compile(r"^# uses: (.+)$", re.MULTILINE)
_FUNCTION = re.compile(r"^(\w+)\(\)", re.MULTILINE)


# The last line that bash reads. It is incomplete before its last brace, so a text that is cut off does nothing. Its
# stdin is empty: a command that reads stdin would otherwise consume the text that follows.
CALL = '{ dispatch "$@" </dev/null; }\n'


@dataclass(frozen=True)
class Script:
    """The text of a step, without its header.

    reads   names of the header values that it reads: all upper-case variables that it does not set
    undo    whether it has a `down`
    """

    text: str
    reads: frozenset[str]
    undo: bool = False

    @cached_property
    def file(self) -> str:
        """Return the text of the file on a machine. It does nothing and reads no value until it is called."""
        return f"{self.text}\n"

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of that file, in hexadecimal."""
        return hashlib.sha256(self.file.encode()).hexdigest()

    def with_texts(self, texts: Mapping[str, Value]) -> Script:
        """Return the script with these values in it, by header name; they are the same in every cluster."""
        return Script(f"{self.text}\n{header(texts)}", self.reads.difference(texts), self.undo) if texts else self


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
    parts = [(role, phase) for role in roles for phase in phases if _takes_part(role, phase)]
    functions = Functions(f"{role.name}/{phase}" for role, phase in parts if _script(role, phase))
    up = [*_packages(parts), *_wanted(parts)]
    for role, phase in parts:
        up += _files(role, phase)
        if _script(role, phase):
            up.append(f"{role.name}_{phase}")
    if functions.has("run_checks"):
        # If the first check fails, the others would fail too. The problems of the others are reported together.
        first, *others = (f"{role.name}_{phase}" for role, phase in parts if _script(role, phase))
        up = [first, " ".join(["run_checks", *others])]
    # At the end: a package such as munge must not be installed before its role has written its files.
    later = [*_packages((role, phase) for role in roles for phase in ahead)]
    variables = [f"AHEAD=({line.removeprefix('ensure_packages ')})" for line in later]
    package_lists = [*_packages((role, phase) for role in roles for phase in (*ahead, *next_phases))]
    up = [
        *(line.replace("ensure_packages", "begin_package_lists", 1) for line in package_lists),
        *variables,
        *up,
        *later,
    ]
    down = []
    if leaves:
        leaving = [role for role in reversed(roles) if _script(role, "leave")]
        functions.add(f"{role.name}/leave" for role in leaving)
        down = [f"{role.name}_leave" for role in leaving]
    else:
        undo = [f"{role.name}_{phase}_{part}" for part in ("release", "forget") for role, phase in reversed(parts)]
        down = [name for name in undo if functions.has(name)]
    bodies = [_function("up", up)]
    if down:
        bodies.append(_function("down", [*down, "result left true"]))
    texts = {name: text for role in roles for name, text in role.texts.items() if name in functions.reads}
    return Script("\n".join([functions.text, *bodies]), functions.reads, undo=bool(down)).with_texts(texts)


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
    """Return the program that a node keeps for leaving: the phase `leave` of every role, in reverse."""
    return _leave_program(tuple(roles))


@lru_cache
def _leave_program(roles: tuple[Role, ...]) -> Script:
    leaving = [f"{role.name}/leave" for role in roles if _script(role, "leave")]
    functions = Functions(leaving, shared=("as_user", "folders"))
    calls = [f"{role.name}_leave" for role in reversed(roles) if _script(role, "leave")]
    return Script("\n".join([functions.text, _LEAVE_ALONE, *calls, "echo left"]), functions.reads)


def expire_program(roles: Sequence[Role]) -> Script:
    """Return the program of a head node that removes expired spot nodes (components/roles/slurm/expire.sh)."""
    members = [role for role in reversed(roles) if _script(role, "register")]
    functions = Functions([*(f"{role.name}/register" for role in members), f"slurm/{EXPIRE[0]}"], shared=("base",))
    calls = [f"{role.name}_register_forget" for role in members]
    forget = _function("expire_node", [call for call in calls if functions.has(call)])
    # The program sets the values of a node itself.
    reads = frozenset(name for name in functions.reads if not name.startswith(("NODE_", "POOL_")))
    text = functions.text.removeprefix("#!/bin/bash\n")
    return Script("\n".join([text, forget, "slurm_expire"]), reads)


def again_program() -> Script:
    """Return the program of a head node that repeats failed fabric proofs (components/roles/fabric/again.sh)."""
    functions = Functions([f"fabric/{AGAIN[0]}"], shared=("base",))
    return Script("\n".join([functions.text.removeprefix("#!/bin/bash\n"), "fabric_again"]), functions.reads)


def single(path: Path) -> Script:
    """Return a script file as the whole script of a step."""
    functions = Functions([], path.read_text(encoding="utf-8").removesuffix("\n"))
    return Script(functions.text, functions.reads)


def _script(role: Role, phase: str) -> bool:
    return (FOLDER / role.name / f"{phase}.sh").is_file()


def _takes_part(role: Role, phase: str) -> bool:
    return _script(role, phase) or any(phase in phases for phases in (role.files, role.packages, role.wanted))


def _packages(parts: Iterable[tuple[Role, str]]) -> Iterator[str]:
    """Yield one command, so that a step has one transaction."""
    wanted = [package for role, phase in parts for package in role.packages.get(phase, ())]
    if wanted:
        yield shlex.join(["ensure_packages", *dict.fromkeys(wanted)])


def _wanted(parts: Iterable[tuple[Role, str]]) -> Iterator[str]:
    """Yield one command per role, whose transaction may fail."""
    for role, phase in parts:
        if packages := role.wanted.get(phase):
            yield shlex.join(["try_packages", *packages])


def _files(role: Role, phase: str) -> Iterator[str]:
    yield "CHANGED="
    if files := role.files.get(phase):
        yield shlex.join(
            ["ensure_files", *(field for file in files for field in (file.path, file.mode, file.owner, file.text))]
        )


def _function(name: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{name}() {{", *(f"    {line}" for line in lines), "}"])


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
