"""What a node's findings mean for Slurm: whether to drain it, to say another reason, or to take its own drain back.

Pure. A drain is the node's own where Slurm's reason and the second at which it was set are those that the node
remembers: one that a person sets with the very same words is that person's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from components.validation.preflight.findings import Finding

# By which people and `tailrack nodes` know such a drain.
HEALTH_PREFIX = "health: "
# The same of the head node's deep check (became_slow.py).
DEEP_PREFIX = "tailrack deep check: "
MOST_CHARACTERS = 250
# Of a script's own remedy in a reason, so that there is room for what it printed.
MOST_REMEDY = 100
# Slurm's drain after a failed prolog or epilog, and what `script_reason` makes of it.
SCRIPT = re.compile(r"(Prolog|Epilog) error(?:: ((?:prolog|epilog)\.d/\S+): (.*?)(?:; next: (.*))?)?", re.DOTALL)
# What grows from look to look, in the words of a finding.
_GROWS = re.compile(r"(?<!\d)\d+(?:\.\d+)? ?(?:%|[KMGT]iB|minutes|times|s\b|of \d+ are free)|\(\d[^()]*times\)")


@dataclass(frozen=True)
class Drain:
    """A drain: its reason, when Slurm was told (seconds since 1970, as Slurm says it), and the run of slurmd during
    which a look has last seen it."""

    reason: str
    at: int
    during: str


@dataclass(frozen=True)
class Memory:
    """own        the drain that this node has set and not yet taken back
    causes        the errors that it was for
    accepted      errors with which a person took the node back: they drain it no more until they have been gone
    """

    own: Drain | None = None
    causes: frozenset[str] = frozenset()
    accepted: frozenset[str] = frozenset()

    def plain(self) -> dict[str, Any]:
        """In the types of JSON."""
        own = None if self.own is None else [self.own.reason, self.own.at, self.own.during]
        return {"own": own, "causes": sorted(self.causes), "accepted": sorted(self.accepted)}

    @classmethod
    def of(cls, plain: object) -> Memory:
        """Of what `plain` made; nothing of what is of another form."""
        try:
            if not isinstance(plain, Mapping):
                return cls()
            own = plain["own"]
            drain = None if own is None else Drain(str(own[0]), int(own[1]), str(own[2]))
            return cls(drain, frozenset(map(str, plain["causes"])), frozenset(map(str, plain["accepted"])))
        except (KeyError, TypeError, ValueError, IndexError):
            return cls()


@dataclass(frozen=True)
class Slurm:
    """What Slurm says of the node: whether it is drained, why, who said so, and when."""

    drained: bool
    reason: str = ""
    by: str = ""
    at: int = 0


@dataclass(frozen=True)
class Decision:
    """action   `drain` with a reason, `resume`, or `` for nothing to say to Slurm
    memory      what is remembered afterwards; a drain's time is not known before Slurm is asked again
    unhealthy   errors by which jobs should not begin here
    """

    action: str
    memory: Memory
    reason: str = ""
    unhealthy: Sequence[Finding] = field(default_factory=tuple)


def cause(item: Finding) -> str:
    """What a finding is about, the same at every look for as long as it lasts."""
    return f"{item['check']}: {_GROWS.sub('#', item['seen'])}"


def reason_of(errors: Sequence[Finding]) -> str:
    """The reason of a drain: the first error with what helps, and how many more there are."""
    first, more = errors[0], len(errors) - 1
    text = f"{HEALTH_PREFIX}{first['check']}: {first['seen']}"
    text += f" (and {more} more)" if more else ""
    text += f"; next: {first['remedy']}" if first["remedy"] else ""
    return _short(_as_slurm_keeps(text), MOST_CHARACTERS)


def script_reason(slurms: str, script: str, what: str, remedy: str) -> str:
    """Return the reason of a drain after a failed prolog or epilog: Slurm's own, the script, its last line, its remedy.

    slurms   `Prolog error` or `Epilog error`
    """
    after = f"; next: {_short(remedy, MOST_REMEDY)}" if remedy else ""
    return _as_slurm_keeps(_short(f"{slurms}: {script}: {what}", MOST_CHARACTERS - len(after)) + after)


def _as_slurm_keeps(text: str) -> str:
    """Slurm's own files and tools have reasons in double quotes."""
    return text.replace('"', "'").replace("\\", "/")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def is_own(slurm: Slurm, own: Drain | None) -> bool:
    """Whether the drain that Slurm has is the one that the node has set."""
    return own is not None and slurm.drained and (slurm.reason, slurm.at) == (own.reason, own.at)


def decide(
    findings: Sequence[Finding], slurm: Slurm, memory: Memory, during: str, *, instead: bool = False
) -> Decision:
    """What to do now.

    during    which run of slurmd this is, of which boot
    instead   Slurm's own drain is of these errors too: the reason may take the place of Slurm's
    """
    errors = [item for item in findings if item["severity"] == "error"]
    here = {cause(item) for item in errors}
    accepted = memory.accepted & here
    own = memory.own
    # tailrack-shutdown (role slurm) has called a machine down that shuts down: in the same words, at another second.
    shut_down = own is not None and slurm.drained and slurm.reason == own.reason and own.during != during
    if own is not None and (shut_down or is_own(slurm, own)):
        own = replace(own, at=slurm.at, during=during)
    elif own is not None:
        # Somebody has said otherwise since. Who takes it back with these errors knows of them; but a node that was
        # started again comes back by itself, and one that slurmd has made known anew has lost its drain.
        if not slurm.drained and own.during == during:
            accepted |= memory.causes & here
        own = None
    bad = [item for item in errors if cause(item) not in accepted]
    if not bad:
        return Decision("resume" if own else "", Memory(None, frozenset(), frozenset(accepted)))
    causes = frozenset(map(cause, bad))
    others = slurm.drained and own is None and not (instead and slurm.by == "slurm")
    if others or (own is not None and causes == memory.causes):
        kept = Memory(own, causes if own else frozenset(), frozenset(accepted))
        return Decision("", kept, unhealthy=bad)
    reason = reason_of(bad)
    return Decision("drain", Memory(Drain(reason, 0, during), causes, frozenset(accepted)), reason, bad)
