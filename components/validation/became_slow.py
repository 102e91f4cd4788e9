"""Whether a node has become slow since it joined, and what that means for Slurm. Pure.

A node is held against itself: against the bus bandwidth that it gave by itself when it joined, and against its floor
where there is one. What it never reached is no news, and what nobody has measured before is UNJUDGED.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from components.validation.figures import LARGEST_SPREAD_OF_SOCKETS, largest_spread
from components.validation.preflight.drain import DEEP_PREFIX
from components.validation.preflight.findings import Finding
from components.validation.verdict import Result

MOST_CHARACTERS = 250
# What differs from look to look.
_NUMBER = re.compile(r"[0-9][0-9.]*")
JOINED, CHECKED = "when it joined", "when it was first checked"


@dataclass(frozen=True)
class Measured:
    """What one check of a node has found.

    gb_per_s    bus bandwidth of the node by itself, 1e9 bytes a second; None where it is no whole and right measurement
    floor       the least that its hardware should give; None where nobody knows
    tolerance   how much less than before is still the same, as a fraction
    broken      what is wrong with it whatever it measures, such as wrong data; empty where nothing is
    doubt       why there is no figure
    """

    gb_per_s: float | None
    floor: float | None = None
    tolerance: float = LARGEST_SPREAD_OF_SOCKETS
    broken: tuple[str, ...] = ()
    doubt: str = ""


@dataclass(frozen=True)
class Record:
    """What is remembered of a node.

    of          what the figures are of: its address, its GPUs, and how it is measured
    reference   what it gave at first, GB/s, and since when (JOINED, CHECKED)
    last        the last figure, and what was `broken` then; when the next check is due (seconds since 1970)
    accepted    the figure, and what is broken, with which a person has taken it back: they drain it no more, until it
                was well again
    own         the drain that is ours: its reason, and when Slurm was told
    trying      whether the node was taken back to be checked, which no other job could be on meanwhile
    forgotten   whether a person wants it held against its next figure, whatever it gave when it joined
    """

    of: Mapping[str, Any] = field(default_factory=dict)
    reference: float | None = None
    since: str = CHECKED
    last: float | None = None
    broken: tuple[str, ...] = ()
    due: float = 0
    accepted: float | None = None
    accepted_broken: tuple[str, ...] = ()
    own: tuple[str, int] | None = None
    trying: bool = False
    forgotten: bool = False

    def plain(self) -> dict[str, Any]:
        """In the types of JSON."""
        return asdict(self)

    @classmethod
    def read(cls, plain: object) -> Record:
        """Of what `plain` made; nothing of what is of another form."""
        try:
            if not isinstance(plain, Mapping):
                return cls()
            own = plain["own"]
            found = cls(**plain)
            return replace(
                found,
                own=None if own is None else (str(own[0]), int(own[1])),
                broken=tuple(map(str, found.broken)),
                accepted_broken=tuple(map(str, found.accepted_broken)),
                due=float(found.due),
            )
        except (KeyError, TypeError, ValueError, IndexError):
            return cls()

    def about(self, of: Mapping[str, Any]) -> Record:
        """The same, where it is of this machine measured in this way; of another one only whose the drain is."""
        return self if self.of == of else Record(of=of, own=self.own, trying=self.trying)

    def taken_back(self) -> Record:
        """After a person has taken the node back with what it was drained for."""
        return replace(self, own=None, accepted=self.last, accepted_broken=self.broken)


def measured(result: Result, findings: Sequence[Finding], *, on_gpus: bool) -> Measured:
    """What a result, and what was found beside it, say of a node."""
    broken = [f"{each['check']}: {each['seen']}" for each in findings if each["severity"] == "error"]
    if result["wrong"]:
        broken.append(f"wrong data ({result['wrong']} out of bounds)")
    whole = result["verdict"] in ("PASS", "UNJUDGED") or (
        # A figure below its floor, or of another transport than it should be, is one; that of a broken job is not.
        result["verdict"] == "FAIL" and not result["wrong"] and result["reason"].startswith("Measured ")
    )
    return Measured(
        gb_per_s=result["busbw_gb_per_s"] if whole else None,
        floor=result["floor_gb_per_s"],
        tolerance=largest_spread(result["transport"]) if on_gpus else LARGEST_SPREAD_OF_SOCKETS,
        broken=tuple(broken),
        doubt="" if whole else result["reason"],
    )


def against(found: Measured, record: Record) -> str:
    """What speaks against the node, with both figures; empty where nothing does."""
    accepted = {_NUMBER.sub("#", each) for each in record.accepted_broken}
    broken = [each for each in found.broken if _NUMBER.sub("#", each) not in accepted]
    figure = found.gb_per_s
    if figure is None:
        return broken[0] if broken else ""
    before = record.reference
    words = f"{shown(figure)} GB/s"
    if before is not None:
        words += f", {shown(before)} {record.since}"
    if broken:
        return f"{broken[0]}; {words}"
    least = [each for each in (before, record.accepted) if each is not None]
    if least and figure < (1 - found.tolerance) * min(least):
        return words
    # One that never reached its floor was taken as it is.
    known = min(least, default=None)
    if found.floor is not None and figure < found.floor and (known is None or known >= found.floor):
        return f"{words}, below its floor of {shown(found.floor)}"
    return ""


def better(one: Measured, other: Measured) -> Measured:
    """Of two checks of one node the one that speaks less against it; what is broken in one of them is."""
    broken = tuple(dict.fromkeys([*one.broken, *other.broken]))
    if one.gb_per_s is None or other.gb_per_s is None:
        # Slow once, and nothing the other time, is no proof.
        return replace(other if one.gb_per_s is not None else one, gb_per_s=None, broken=broken)
    best = max(one, other, key=lambda each: each.gb_per_s or 0.0)
    return replace(best, broken=broken)


def remembered(found: Measured, record: Record, due: float) -> Record:
    """The record after a check. Its first figure is what it is held against from then on."""
    if found.gb_per_s is None and not found.broken:
        return replace(record, due=due)
    kept = replace(record, broken=found.broken, due=due)
    if found.gb_per_s is None:
        return kept
    kept = replace(kept, last=found.gb_per_s)
    if record.reference is None and not against(found, record):
        kept = replace(kept, reference=found.gb_per_s, since=CHECKED)
    well = replace(kept, accepted=None, accepted_broken=())
    return kept if against(found, well) else well


def reason(words: str) -> str:
    """The reason of a drain, as Slurm's files and tools can have it."""
    text = DEEP_PREFIX + "".join(letter if letter.isprintable() else " " for letter in words)
    text = text.replace('"', "'").replace("\\", "/")
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def shown(gb_per_s: float) -> str:
    """`364.8`, and of small figures three digits."""
    return f"{gb_per_s:.1f}" if gb_per_s >= 10 else f"{gb_per_s:.3g}"
