"""Decide from a node's findings whether to drain it, to change the drain's reason, or to resume it. Pure.

A drain is the node's own if reason and time in Slurm match the node's memory: a person may set the same reason at
another time.

Findings that drain no node become its comment in Slurm, for `tailrack nodes` and `make status`. A comment that somebody
else set stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from components.slurm_commands.nodes import Node
from components.validation.preflight.findings import Finding
from components.validation.preflight.node import PROFILING, VERSIONS

# People and `tailrack nodes` recognize the node's own drain by this prefix.
HEALTH_PREFIX = "health: "
# The prefix of the head node's benchmark check (became_slow.py).
DEEP_PREFIX = "tailrack deep check: "
# The reasons of a node that is sick, as opposed to one that a person or a step drained.
SICK_PREFIXES = (HEALTH_PREFIX, DEEP_PREFIX)
NOTE_PREFIX = "tailrack: "
_NOTED = frozenset({PROFILING, VERSIONS})
MOST_CHARACTERS = 250
# Limits a script's own remedy, to leave room for its output.
MOST_REMEDY = 100
# Slurm's reasons after a failed prolog or epilog, and the reason that `script_reason` makes of one some seconds later.
ERRORS_OF_SLURM = ("Prolog error", "Epilog error")
SCRIPT = re.compile(r"(Prolog|Epilog) error(?:: ((?:prolog|epilog)\.d/\S+): (.*?)(?:; next: (.*))?)?", re.DOTALL)
# Numbers in a finding that grow from check to check.
_GROWS = re.compile(r"(?<!\d)\d+(?:\.\d+)? ?(?:%|[KMGT]iB|minutes|times|s\b|of \d+ are free)|\(\d[^()]*times\)")


class Drain(NamedTuple):
    """A drain: its reason, its time in Slurm (Unix seconds), and the run of slurmd in which a check last saw it."""

    reason: str
    at: int
    during: str


@dataclass(frozen=True)
class Memory:
    """The node's stored drain.

    own        the drain that this node has set and not yet removed
    causes     the errors that led to it
    accepted   errors with which a person resumed the node: they drain it again only after they were gone
    """

    own: Drain | None = None
    causes: frozenset[str] = frozenset()
    accepted: frozenset[str] = frozenset()

    def plain(self) -> dict[str, Any]:
        return {"own": self.own, "causes": sorted(self.causes), "accepted": sorted(self.accepted)}


@dataclass(frozen=True)
class Decision:
    """action      `drain` with a reason, `resume`, or `` for no command to Slurm
    memory      the new memory; a drain's time is unknown until Slurm reports it
    unhealthy   errors that should keep jobs from starting here
    """

    action: str
    memory: Memory
    reason: str = ""
    unhealthy: Sequence[Finding] = field(default_factory=tuple)


def cause(item: Finding) -> str:
    """Return the subject of a finding, without values that change from check to check."""
    return f"{item['check']}: {_GROWS.sub('#', item['seen'])}"


def reason_of(errors: Sequence[Finding]) -> str:
    """Return the reason of a drain: the first error, how many more there are, and the remedy."""
    first, more = errors[0], len(errors) - 1
    text = f"{HEALTH_PREFIX}{first['check']}: {first['seen']}"
    text += f" (and {more} more)" if more else ""
    text += f"; next: {first['remedy']}" if first["remedy"] else ""
    return as_reason(text)


def as_reason(text: str) -> str:
    """Return a text as the reason of a drain."""
    return _short(_as_slurm_keeps(text), MOST_CHARACTERS)


def script_reason(slurms: str, script: str, line: str, remedy: str) -> str:
    """Return the reason after a failed prolog or epilog: Slurm's reason, the script, its last line, its remedy.

    slurms   `Prolog error` or `Epilog error`
    """
    ending = f"; next: {_short(remedy, MOST_REMEDY)}" if remedy else ""
    return _as_slurm_keeps(_short(f"{slurms}: {script}: {line}", MOST_CHARACTERS - len(ending)) + ending)


def _as_slurm_keeps(text: str) -> str:
    """Replace characters that Slurm's files and tools cannot keep: they put reasons in double quotes."""
    return text.replace('"', "'").replace("\\", "/")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def is_own(slurm: Node, drain: Drain | None) -> bool:
    return drain is not None and slurm.drained and (slurm.reason, slurm.since) == (drain.reason, drain.at)


def decide(findings: Sequence[Finding], slurm: Node, memory: Memory, during: str, *, instead: bool = False) -> Decision:
    """Return the next action.

    slurm     the node as slurmctld has it
    during    identifies the boot and the run of slurmd
    instead   whether the reason may replace Slurm's own, because Slurm drained the node for these errors
    """
    errors = [item for item in findings if item["severity"] == "error"]
    causes_now = {cause(item) for item in errors}
    accepted = memory.accepted & causes_now
    drain = memory.own
    # On shutdown, tailrack-shutdown (role slurm) sets the node down with the same reason, at another second.
    shut_down = drain is not None and slurm.drained and slurm.reason == drain.reason and drain.during != during
    if drain is not None and (shut_down or is_own(slurm, drain)):
        drain = drain._replace(at=slurm.since, during=during)
    elif drain is not None:
        # The drain was removed or replaced. A person who resumes the node despite these errors accepts them; but a
        # restarted node resumes without a person, and a node that slurmd registered again has lost its drain.
        if not slurm.drained and drain.during == during:
            accepted |= memory.causes & causes_now
        drain = None
    bad = [item for item in errors if cause(item) not in accepted]
    if not bad:
        return Decision("resume" if drain else "", Memory(accepted=frozenset(accepted)))
    causes = frozenset(map(cause, bad))
    others = slurm.drained and drain is None and not (instead and slurm.by == "slurm")
    if others or (drain is not None and causes == memory.causes):
        memory_now = Memory(drain, causes if drain else frozenset(), frozenset(accepted))
        return Decision("", memory_now, unhealthy=bad)
    reason = reason_of(bad)
    return Decision("drain", Memory(Drain(reason, 0, during), causes, frozenset(accepted)), reason, bad)


def new_comment(items: Iterable[Finding], comment: str) -> str | None:
    """Return the comment that the node should have; None if the present one stays."""
    if comment and not comment.startswith(NOTE_PREFIX):
        return None
    notes = [f"{item['check']}: {item['seen']}; next: {item['remedy']}" for item in items if item["check"] in _NOTED]
    wanted = NOTE_PREFIX + "; ".join(notes) if notes else ""
    return None if wanted == comment else wanted


def note_in(comment: str) -> str:
    """Return the note in a comment; empty without one."""
    return comment.removeprefix(NOTE_PREFIX) if comment.startswith(NOTE_PREFIX) else ""
