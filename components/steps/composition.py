"""Steps composed from roles: which phases a step has, and the script that they make.

A phase of a role is a file `<phase>.sh` in its folder, with a function `<role>_<phase>`. A step runs the functions of
its phases role after role. Undoing goes the other way round: first every `<role>_<phase>_release`, which may still
use what the others have made, then every `<role>_<phase>_forget`. Leaving the cluster is the phase `leave`, in reverse.
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
# In front of every step.
SHARED = ("base", "as_user", "folders", "proxy", "fetch", "packages")

# Step to its phases. Which machines have which steps is in head_node.py and compute_node.py.
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

# The last three are those of /etc/os-release.
_SHELLS_OWN = frozenset(
    {"BASHPID", "BASH_REMATCH", "EUID", "PATH", "HOME", "SECONDS", "RANDOM", "ID", "VERSION_ID", "VERSION_CODENAME"}
)
_READ = re.compile(r"(?<!\\)\$\{?[#!]?([A-Z][A-Z0-9_]+)")
_SET = re.compile(r"(?:^|[\s(;&|!])(?:local |declare |export )?([A-Z][A-Z0-9_]+)(?:=|\+=)", re.MULTILINE)
# By hand there is no log to write to and nobody to report to: what cannot be undone is said, and the rest goes on.
_LEAVE_ALONE = "set +e"
_USES = re.compile(r"^# uses: (.+)$", re.MULTILINE)
_FUNCTION = re.compile(r"^(\w+)\(\)", re.MULTILINE)


# The last line of all that bash reads, and not whole before its last brace: what is cut off on its way does nothing.
# Its stdin is empty, because a command that read stdin would otherwise eat what comes after it.
CALL = '{ dispatch "$@" </dev/null; }\n'


@dataclass(frozen=True)
class Script:
    """The text of a step, without its header.

    reads   names of the header values that it reads: all upper-case variables that it does not set itself
    undo    whether it has a `down`
    """

    text: str
    reads: frozenset[str]
    undo: bool = False

    @cached_property
    def file(self) -> str:
        """The text as it lies on a machine. It does nothing and reads no value until it is called."""
        return f"{self.text}\n"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of that file, in hexadecimal."""
        return hashlib.sha256(self.file.encode()).hexdigest()

    def with_texts(self, texts: Mapping[str, Value]) -> Script:
        """Return the script with values of its own, by header name: those that are the same in every cluster."""
        return Script(f"{self.text}\n{header(texts)}", self.reads.difference(texts), self.undo) if texts else self


def compose(
    roles: Sequence[Role],
    phases: Sequence[str],
    *,
    leaves: bool = False,
    ahead: Sequence[str] = (),
    looks: Sequence[str] = (),
) -> Script:
    """Return the script that brings a machine through phases of its roles.

    ahead    phases of a later step, whose packages come at the end of this one: while others are waited for
    looks    phases of the next step, for which the package lists are read beside this one, which does not wait for it
    leaves   its `down` is the phase `leave` of every role, in reverse; without it, it undoes its own phases where
             one of them says how
    """
    return _composed(tuple(roles), tuple(phases), leaves, tuple(ahead), tuple(looks))


# Of thousands of nodes each has the same scripts.
@lru_cache
def _composed(
    roles: tuple[Role, ...], phases: tuple[str, ...], leaves: bool, ahead: tuple[str, ...], looks: tuple[str, ...]
) -> Script:
    parts = [(role, phase) for role in roles for phase in phases if _of(role, phase)]
    functions = Functions(f"{role.name}/{phase}" for role, phase in parts if _script(role, phase))
    up = [*_packages(parts), *_wanted(parts)]
    for role, phase in parts:
        up += _files(role, phase)
        if _script(role, phase):
            up.append(f"{role.name}_{phase}")
    if functions.has("run_checks"):
        # The first says whether it is a machine at all; the problems of the others are told together.
        first, *others = (f"{role.name}_{phase}" for role, phase in parts if _script(role, phase))
        up = [first, " ".join(["run_checks", *others])]
    # Not before: a package that others need (munge) would find nothing of what its own role brings.
    later = [*_packages((role, phase) for role in roles for phase in ahead)]
    along = [f"AHEAD=({line.removeprefix('ensure_packages ')})" for line in later]
    listed = [*_packages((role, phase) for role in roles for phase in (*ahead, *looks))]
    up = [*(line.replace("ensure_packages", "begin_package_lists", 1) for line in listed), *along, *up, *later]
    down = []
    if leaves:
        gone = [role for role in reversed(roles) if _script(role, "leave")]
        functions.add(f"{role.name}/leave" for role in gone)
        down = [f"{role.name}_leave" for role in gone]
    else:
        undo = [f"{role.name}_{phase}_{part}" for part in ("release", "forget") for role, phase in reversed(parts)]
        down = [name for name in undo if functions.has(name)]
    bodies = [_function("up", up)]
    if down:
        bodies.append(_function("down", [*down, "result left true"]))
    texts = {name: text for role in roles for name, text in role.texts.items() if name in functions.reads}
    return Script("\n".join([functions.text, *bodies]), functions.reads, undo=bool(down)).with_texts(texts)


def answer(roles: Sequence[Role], phases: Sequence[str]) -> Answer:
    """Return what the step of these phases has to answer: the facts of its roles.

    Raises ValueError where two roles report one.
    """
    return _answer(tuple(roles), tuple(phases))


@lru_cache
def _answer(roles: tuple[Role, ...], phases: tuple[str, ...]) -> Answer:
    readers: dict[str, Reader] = {}
    for role in roles:
        own = {name: read for phase in phases for name, read in role.facts.get(phase, {}).items()}
        for name in own.keys() & readers.keys():
            raise ValueError(f"{name} is reported by role {role.name}, and by another role too")
        readers |= own
    return Answer(readers)


def concerned(roles: Sequence[Role], phases: Sequence[str]) -> bool:
    """Whether a role has anything to do in these phases."""
    return any(_of(role, phase) for role in roles for phase in phases)


def leave_program(roles: Sequence[Role]) -> Script:
    """Return the program that a node keeps for the day it leaves: the phase `leave` of every role, in reverse."""
    return _leave_program(tuple(roles))


@lru_cache
def _leave_program(roles: tuple[Role, ...]) -> Script:
    leaving = [f"{role.name}/leave" for role in roles if _script(role, "leave")]
    functions = Functions(leaving, shared=("as_user", "folders"))
    calls = [f"{role.name}_leave" for role in reversed(roles) if _script(role, "leave")]
    return Script("\n".join([functions.text, _LEAVE_ALONE, *calls, "echo left"]), functions.reads)


def expire_program(roles: Sequence[Role]) -> Script:
    """Return the program by which a head node forgets nodes that were taken back (components/roles/slurm/expire.sh)."""
    members = [role for role in reversed(roles) if _script(role, "register")]
    functions = Functions([*(f"{role.name}/register" for role in members), f"slurm/{EXPIRE[0]}"], shared=("base",))
    calls = [f"{role.name}_register_forget" for role in members]
    forget = _function("expire_node", [call for call in calls if functions.has(call)])
    # What concerns one node it finds out itself.
    reads = frozenset(name for name in functions.reads if not name.startswith(("NODE_", "POOL_")))
    text = functions.text.removeprefix("#!/bin/bash\n")
    return Script("\n".join([text, forget, "slurm_expire"]), reads)


def again_program() -> Script:
    """Return the program by which a head node proves again what could not be (components/roles/fabric/again.sh)."""
    functions = Functions([f"fabric/{AGAIN[0]}"], shared=("base",))
    return Script("\n".join([functions.text.removeprefix("#!/bin/bash\n"), "fabric_again"]), functions.reads)


def single(path: Path) -> Script:
    """Return a script that is a step by itself."""
    functions = Functions([], path.read_text(encoding="utf-8").removesuffix("\n"))
    return Script(functions.text, functions.reads)


def _script(role: Role, phase: str) -> bool:
    return (FOLDER / role.name / f"{phase}.sh").is_file()


def _of(role: Role, phase: str) -> bool:
    return _script(role, phase) or any(phase in of for of in (role.files, role.packages, role.wanted))


def _packages(parts: Iterable[tuple[Role, str]]) -> Iterator[str]:
    """One transaction a step."""
    wanted = [package for role, phase in parts for package in role.packages.get(phase, ())]
    if wanted:
        yield shlex.join(["ensure_packages", *dict.fromkeys(wanted)])


def _wanted(parts: Iterable[tuple[Role, str]]) -> Iterator[str]:
    """A transaction a role, which may come to nothing."""
    for role, phase in parts:
        if packages := role.wanted.get(phase):
            yield shlex.join(["try_packages", *packages])


def _files(role: Role, phase: str) -> Iterator[str]:
    yield "CHANGED="
    if files := role.files.get(phase):
        yield shlex.join(
            ["ensure_files", *(word for file in files for word in (file.path, file.mode, file.owner, file.text))]
        )


def _function(name: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{name}() {{", *(f"    {line}" for line in lines), "}"])


class Functions:
    """The bash that scripts share, and that of some files, each once, what it uses before it."""

    def __init__(self, names: Iterable[str], last: str = "", shared: Sequence[str] = SHARED) -> None:
        self._taken = dict[str, str]()
        self._homes = dict[str, str]()
        for name in shared:
            self._take(name, _body(SCRIPTS / f"{name}.sh"))
        self.add(names)
        self._last = [last] if last else []

    def add(self, names: Iterable[str]) -> None:
        """Take more files in, named `<role>/<file>`. Raises ValueError where two of all have a function of one name."""
        for name in names:
            if name not in self._taken:
                text = _body(FOLDER / f"{name}.sh")
                self.add(used for line in _USES.findall(text) for used in line.split())
                self._take(name, text)

    def _take(self, name: str, text: str) -> None:
        """Take a file's text in. Of two functions of one name bash would run the later for both."""
        for function in _FUNCTION.findall(text):
            if (home := self._homes.setdefault(function, name)) != name:
                raise ValueError(f"{name}.sh has a function {function}, which {home}.sh has too: give it another name")
        self._taken[name] = text

    def has(self, function: str) -> bool:
        """Whether one of the files has a function of this name."""
        return function in self._homes

    @property
    def text(self) -> str:
        return "\n".join([*self._taken.values(), *self._last])

    @property
    def reads(self) -> frozenset[str]:
        found = [_names(text) for text in (*self._taken.values(), *self._last)]
        return frozenset().union(*(read for read, _ in found)).difference(_SHELLS_OWN, *(made for _, made in found))


# Each file is in many scripts.
@lru_cache
def _names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The upper-case variables that a text reads, and those that it sets."""
    return frozenset(_READ.findall(text)), frozenset(_SET.findall(text))


@lru_cache
def _body(path: Path) -> str:
    text = path.read_text(encoding="utf-8").removesuffix("\n")
    return text if path.parent == SCRIPTS else text.removeprefix("#!/bin/bash\n")
