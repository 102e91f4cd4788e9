"""Decide which machines of an elastic pool must exist. Pure.

The states of placeholders in slurmctld are the wishes: a node that powers up needs a machine, one that powers down or
is powered down has none. Nothing else is kept but failed attempts, so a controller that was killed decides the same
again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from components.node.waiting import within
from components.roles.commands.tailrack.elastic import NO_MACHINE, Attempts, no_machine
from components.slurm_commands.nodes import BUSY
from components.validation.preflight.drain import SICK_PREFIXES

# Seconds until the next attempt to rent a machine; they double with each attempt that fails.
FIRST_PAUSE, LONGEST_PAUSE = 120, 3600
# Least seconds between two replacements of sick machines of a pool: a broken image, or a share that hangs for a while,
# must not cost many machines.
REPLACE_SECONDS = 1800

_UP = frozenset({"POWERING_UP", "POWER_UP"})
_GONE = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"})
_OUT = frozenset({"DOWN", "DRAIN", "FAIL"})
_OF_TAILRACK = ("tailrack", *SICK_PREFIXES)


@dataclass(frozen=True)
class Placeholder:
    """A placeholder in slurmctld: its states, and why it is out and by whom."""

    name: str
    flags: frozenset[str]
    reason: str = ""
    by: str = ""

    @property
    def awaited(self) -> bool:
        """Return whether a job waits for its machine."""
        return bool(self.flags & _UP) and "DOWN" not in self.flags

    @property
    def wanted(self) -> bool:
        """Return whether it must have a machine."""
        # POWER_DOWN waits for the end of a job (power_down_asap).
        gone = _GONE - {"POWER_DOWN"} if self.flags & BUSY else _GONE
        return self.awaited or not self.flags & (gone | _UP)

    @property
    def sick(self) -> bool:
        """Return whether a check has drained it, and it has no job."""
        return "DRAIN" in self.flags and not self.flags & BUSY and self.reason.startswith(SICK_PREFIXES)

    @property
    def out_by_person(self) -> bool:
        return bool(self.flags & _OUT) and self.by not in ("", "slurm") and not self.reason.startswith(_OF_TAILRACK)


@dataclass(frozen=True)
class Plan:
    """The next actions.

    machines   the nodes whose machines must exist after the next run of the pool's `up`
    down       nodes that get no machine now, with the reason
    resume     nodes that a job may ask for again
    power_up   nodes that need a machine without a job
    replace    sick nodes whose machines go back, at most one
    failed     all failed attempts
    """

    machines: frozenset[str]
    down: Mapping[str, str] = field(default_factory=dict)
    resume: Collection[str] = ()
    power_up: Collection[str] = ()
    replace: Collection[str] = ()
    failed: Mapping[str, Attempts] = field(default_factory=dict)


def decide(
    nodes: Iterable[Placeholder],
    *,
    made: Collection[str],
    complete: Collection[str],
    kept: Collection[str],
    failed: Mapping[str, Attempts],
    now: float,
    replaced: float | None = None,
) -> Plan:
    """Return the next actions.

    made       nodes that have resources in the stack
    complete   nodes that the last successful run brought up completely
    kept       nodes that have a machine without a job
    replaced   Unix seconds of the last replacement of a sick machine; None if they are not replaced
    """
    machines, down, resume, power_up, left = set[str](), dict[str, str](), [], [], dict(failed)
    sick: list[str] = []
    # Those whose next attempt is still to wait.
    pausing = {name for name, attempts in failed.items() if within(LONGEST_PAUSE + 1, now, attempts.until)}
    for node in nodes:
        name = node.name
        if node.wanted:
            # A job asks for a new machine, and the one that Slurm has suspended is not returned yet.
            if not (node.awaited and name in made and name in complete):
                machines.add(name)
            if not node.awaited and not node.flags & {"DOWN", "NOT_RESPONDING"}:
                left.pop(name, None)
            if node.sick and name in complete:
                sick.append(name)
        elif name in made or node.out_by_person:
            continue
        elif "ResumeTimeout" in node.reason and node.flags & _OUT:
            attempts = next_attempt(left.get(name), "it did not run jobs within tailrack:elastic.boot_minutes", now)
            left[name] = attempts
            down[name] = no_machine(attempts.why, attempts.until)
        elif name in pausing and node.flags & _OUT and node.reason.startswith(NO_MACHINE):
            continue
        elif node.flags & (_OUT | {"POWERING_DOWN"}):
            resume.append(name)
        elif name in kept and "POWERED_DOWN" in node.flags:
            power_up.append(name)
    replace = sick[:1] if replaced is not None and not within(REPLACE_SECONDS, replaced, now) else []
    return Plan(frozenset(machines), down, tuple(resume), tuple(power_up), tuple(replace), left)


def next_attempt(last: Attempts | None, why: str, now: float) -> Attempts:
    """Return the attempts with one more that failed."""
    count = last.times + 1 if last else 1
    return Attempts(count, now + min(FIRST_PAUSE * 2 ** (count - 1), LONGEST_PAUSE), why)


def after_failures(
    nodes: Iterable[Placeholder], failures: Mapping[str, str], failed: Mapping[str, Attempts], now: float
) -> Plan:
    """Return the actions for nodes whose machines did not come, because their steps failed.

    failures   the cause by node; of all nodes at the key ""
    """
    down, left = dict[str, str](), dict(failed)
    for node in nodes:
        why = failures.get(node.name) or failures.get("")
        if why and node.awaited:
            attempts = left[node.name] = next_attempt(left.get(node.name), why, now)
            down[node.name] = no_machine(attempts.why, attempts.until)
    return Plan(frozenset(), down, failed=left)
