"""Compose a step from the phases of its roles.

A phase of a role is a function of that name in the role's `host.py`, or in another module that the role names
(Role.modules). A step runs its phases, role after role. To undo, it goes through the roles in reverse: first it runs
every function `release`, which may still use the other roles' work, then every `forget`. To leave the cluster, a
machine runs the phase `leave` of all roles in reverse.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, lru_cache
from typing import cast

from components.node.step.values import names
from components.node.step.work import Call
from components.roles.facts import Reader
from components.roles.role import Role, folder_of
from components.steps.results import Answer

# The phases of each step. head_node.py and compute_node.py say which machines run which steps.
CHECK = ("check", "check_head")
CHECK_OF_NODE = ("check", "check_node")
JOIN = ("restore", "join")
JOIN_OF_NODE = ("join", "check_path")
HEAD = ("machine", "head")
COMPUTING_HEAD = ("machine", "head", "compute")
REGISTER = ("register",)
STORAGE = ("storage",)
POOL = ("pool",)
NODE = ("machine", "node", "compute")
LOGIN = ("machine", "node", "login")
SERVICES = ("services",)
NODE_SERVICES = ("node_services",)
LEAVE = ("leave",)
# A pod has its own phases too. A role runs the others there only if it names them (Role.on_pods).
CHECK_OF_POD = ("check", "pod_check", "check_node")
JOIN_OF_POD = ("join", "pod_join", "check_path")
POD = ("machine", "node", "compute", "pod")
REGISTER_OF_POD = ("register", "pod_register")
LEAVE_OF_POD = ("pod_leave", "leave")
BOOT_OF_POD = ("machine", "pod_boot")
_ONLY_PODS = ("pod_check", "pod_join", "pod", "pod_register", "pod_leave", "pod_boot")

# The first phases of the steps that bring tasks, and of those with a record of what their roles have declared.
_STEPS_WITH_TASKS = ("machine", "services")
_STEPS_WITH_RECORD = (*_STEPS_WITH_TASKS, "node_services", *STORAGE)
_END_TASKS: Call = ("end_tasks",)
# Returns whether a machine that has joined is still in the tailnet, at the same address.
IS_JOINED = ("components.roles.network.tailnet.tailscale", "is_joined")
# The functions that undo a phase.
_UNDO = {
    "register": ("release", "forget"),
    "pod_register": ("pod_release", "pod_forget"),
    "pool": ("pool_release", "pool_forget"),
}

# The actions of a step.
_ACTIONS = ("up", "down", "recall")


@dataclass(frozen=True, eq=False)
class Script:
    """The work of a step, without its values (components/node/step/work.py).

    calls   the calls of its actions: `up`, and perhaps `down` or `recall`
    phases  the names of the values that its phases read
    texts   values that are the same in every cluster
    """

    calls: Mapping[str, tuple[Call, ...]]
    phases: frozenset[str] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def reads(self) -> frozenset[str]:
        """Return the names of the values that it needs."""
        needs = {row[-1] for calls in self.calls.values() for call in calls if call[0] == "files" for row in call[1:]}
        return (self.phases | needs - {""}).difference(self.texts)

    @property
    def undo(self) -> bool:
        """Return whether it has a `down`."""
        return "down" in self.calls

    @cached_property
    def file(self) -> str:
        """Return the text of the file on a machine, one line of JSON."""
        plan = {"calls": self.calls, "texts": dict(self.texts)}
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
    leaves        `down` runs the phase `leave` of every role in reverse; otherwise it runs the functions `release` and
                  `forget` of its own phases
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
    else:
        up = [*_packages(parts), *_wanted(parts)]
        for role, phase in parts:
            if phases[0] in _STEPS_WITH_RECORD:
                up.append(("owner", phases[0], f"{phase}/{role.name}", role.made.get(phase, ())))
            up += [*_files(role, phase), *call(role, phase)]
        up += _tasks(phases[0], parts)
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
        down = [_END_TASKS, *(undo for role in reversed(roles) for undo in call(role, "leave"))]
    else:
        down = [undo for part in (0, 1) for role, phase in reversed(parts) for undo in found.undo(role, phase, part)]
    return found.script({"up": tuple(up), **({"down": tuple(down)} if down else {})})


class _Parts:
    """The phases that roles have, as far as they are asked for.

    parts   the roles that have something to do in these phases, with the phase
    """

    def __init__(self, roles: Sequence[Role], phases: Sequence[str]) -> None:
        self._roles = roles
        self.parts = [(role, phase) for role in roles for phase in phases if _takes_part(role, phase)]
        self._phases: list[Callable[..., None]] = []

    def calls(self, role: Role, phase: str, function: str = "") -> Iterator[Call]:
        """Yield the call of a phase, or of another function of its name; nothing if the role has none."""
        found = _function(role.name, (*role.modules, phase), function or phase)
        if found and role.takes(phase):
            self._phases.append(found)
            call = ("python", found.__module__, found.__name__)
            paths = None if function else role.only_where.get(phase)
            yield call if paths is None else ("where", paths, call)

    def undo(self, role: Role, phase: str, part: int) -> Iterator[Call]:
        """Yield the call that undoes a phase: its `release` (0) or `forget` (1)."""
        if phase in _UNDO:
            yield from self.calls(role, phase, _UNDO[phase][part])

    def script(self, calls: Mapping[str, tuple[Call, ...]]) -> Script:
        """Return the script of these calls."""
        texts = {name: text for role in self._roles for name, text in role.texts.items()}
        reads = frozenset[str]().union(*map(names, self._phases))
        return Script(calls, reads, {name: texts[name] for name in texts.keys() & reads})


def answer(roles: Sequence[Role], phases: Sequence[str]) -> Answer:
    """Return the answer that a step of these phases has to print: the facts of its roles.

    Raises ValueError if two roles report the same fact.
    """
    return _answer(tuple(roles), tuple(phases))


@lru_cache
def _answer(roles: tuple[Role, ...], phases: tuple[str, ...]) -> Answer:
    readers: dict[str, Reader] = {}
    for role in roles:
        reporting = (phase for phase in phases if role.takes(phase))
        role_readers = {name: read for phase in reporting for name, read in role.facts.get(phase, {}).items()}
        for name in role_readers.keys() & readers.keys():
            raise ValueError(f"{name} is reported by role {role.name} and by another role")
        readers |= role_readers
    return Answer(readers)


def has_work(roles: Sequence[Role], phases: Sequence[str]) -> bool:
    """Return whether a role has a script, file or package for these phases."""
    return any(_takes_part(role, phase) for role in roles for phase in phases)


def on_pods(roles: Sequence[Role]) -> tuple[Role, ...]:
    """Return the roles as pods have them: without the phases that need systemd, mounts or the firewall."""
    return _on_pods(tuple(roles))


@lru_cache
def _on_pods(roles: tuple[Role, ...]) -> tuple[Role, ...]:
    return tuple(replace(role, only=frozenset({*role.on_pods, *_ONLY_PODS})) for role in roles)


def leave_program(roles: Sequence[Role], phases: Sequence[str] = LEAVE) -> Script:
    """Return the plan that a node keeps for leaving: these phases of every role, in reverse."""
    return _leave_program(tuple(roles), tuple(phases))


@lru_cache
def _leave_program(roles: tuple[Role, ...], phases: tuple[str, ...]) -> Script:
    parts = _Parts(roles, phases)
    calls = [call for role in reversed(roles) for phase in phases for call in parts.calls(role, phase)]
    return parts.script({"leave": (_END_TASKS, *calls)})


def boot_program(roles: Sequence[Role]) -> Script:
    """Return the plan with which a pod comes back in a new container, from what its volume has."""
    return _boot_program(tuple(roles))


@lru_cache
def _boot_program(roles: tuple[Role, ...]) -> Script:
    parts = _Parts(roles, BOOT_OF_POD)
    return parts.script({"boot": tuple(call for role, phase in parts.parts for call in parts.calls(role, phase))})


def expire_program(roles: Sequence[Role]) -> Script:
    """Return the plan of a head node that removes expired spot nodes (components/roles/slurm/slurm/nodes.py).

    It sets node_name itself, and has no other value of a node. Raises ValueError if a role needs one to forget a node.
    """
    # The plan is the same for all nodes, so that the head node needs no other one when a pool brings pods.
    parts = _Parts(roles, REGISTER_OF_POD)
    phases = [(role, phase) for role in reversed(roles) for phase in reversed(REGISTER_OF_POD)]
    forget = [call for role, phase in phases for call in parts.undo(role, phase, 1)]
    expire = ("python", "components.roles.slurm.slurm.nodes", "expire")
    plan = parts.script({"expire": (expire,), "forget": tuple(forget)})
    unknown = {name for name in plan.reads if name.startswith(("node_", "pool_"))} - {"node_name"}
    if unknown:
        raise ValueError(f"a node must be forgotten by its name alone, without {', '.join(sorted(unknown))}")
    return plan


def single(home: str) -> Script:
    """Return the step of one module: its functions `up`, and perhaps `down` and `recall`."""
    module = importlib.import_module(home)
    found = {name: getattr(module, name) for name in _ACTIONS if hasattr(module, name)}
    reads = frozenset[str]().union(*map(names, found.values()))
    return Script({name: (("python", home, name),) for name in found}, phases=reads)


def prepare(roles: Sequence[Role], check: Sequence[str], join: Sequence[str], **more: Sequence[str]) -> Script:
    """Return the script that checks a machine and then lets it join. `more`: see `compose`, for the join."""
    checks = compose(roles, check)
    work = compose(roles, join, ahead=more.get("ahead", ()), next_phases=more.get("next_phases", ()))
    # A machine that has joined needs no other auth key.
    lasting = sorted(work.reads - {"tailnet_auth_key"})
    up = (*checks.calls["up"], ("join", lasting, *IS_JOINED, *work.calls["up"]))
    return Script({"up": up}, checks.reads | work.reads, {**checks.texts, **work.texts})


@cache
def _function(role: str, modules: tuple[str, ...], name: str) -> Callable[..., None] | None:
    """Return a function that a role's modules define; None if they only import it, or lack it."""
    place = folder_of(role)
    for module in modules:
        path = f"components.roles.{place.parent.name}.{role}.{module}"
        if (place / f"{module}.py").is_file():
            found = vars(importlib.import_module(path)).get(name)
            if getattr(found, "__module__", "") == path:
                return cast(Callable[..., None], found)
    return None


def _takes_part(role: Role, phase: str) -> bool:
    if not role.takes(phase):
        return False
    functions = (_function(role.name, (*role.modules, phase), name) for name in (phase, *_UNDO.get(phase, ())))
    return any(functions) or any(phase in phases for phases in (role.files, role.packages, role.wanted, role.tasks))


def _packages(parts: Iterable[tuple[Role, str]]) -> list[Call]:
    """Return one call, so that a step has one transaction; none without packages."""
    wanted = [package for role, phase in parts if role.takes(phase) for package in role.packages.get(phase, ())]
    return [("packages", *dict.fromkeys(wanted))] if wanted else []


def _wanted(parts: Iterable[tuple[Role, str]]) -> list[Call]:
    """Return one call per role, whose transaction may fail."""
    return [("try_packages", *packages) for role, phase in parts if (packages := role.wanted.get(phase))]


def _tasks(step: str, parts: Sequence[tuple[Role, str]]) -> list[Call]:
    """Return one call for the tasks of a step that brings any, also when it brings none any more."""
    if step not in _STEPS_WITH_TASKS:
        return []
    rows = [asdict(task) for role, phase in parts for task in role.tasks.get(phase, ())]
    return [("tasks", step, rows)]


def _files(role: Role, phase: str) -> list[Call]:
    rows = tuple((file.path, file.mode, file.owner, file.text, file.needs) for file in role.files.get(phase, ()))
    return [("files", *rows)] if rows else []
