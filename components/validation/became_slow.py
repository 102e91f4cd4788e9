"""Decide whether a node has become slow since it joined, and whether to drain it. Pure.

A node is compared with its own bandwidth when it joined, and with its floor. A floor that it never reached does not
count; without an earlier measurement it is UNJUDGED.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from components.validation.figures import LARGEST_SPREAD_OF_SOCKETS, largest_spread
from components.validation.preflight.drain import DEEP_PREFIX, as_reason
from components.validation.preflight.findings import Finding, plain
from components.validation.verdict import Result

# Numbers differ from check to check.
_NUMBER = re.compile(r"[0-9][0-9.]*")
JOINED, CHECKED = "when it joined", "when it was first checked"


@dataclass(frozen=True)
class Measured:
    """The outcome of one check of a node.

    gb_per_s    bus bandwidth of the node alone; None if the measurement is incomplete or wrong
    floor       minimum for its hardware; None if unknown
    tolerance   accepted loss as a fraction
    broken      other faults, such as wrong data
    doubt       the reason for a missing bandwidth
    """

    gb_per_s: float | None
    floor: float | None = None
    tolerance: float = LARGEST_SPREAD_OF_SOCKETS
    broken: tuple[str, ...] = ()
    doubt: str = ""


@dataclass(frozen=True)
class Record:
    """The stored data about a node.

    of          the subject of the figures: its address, its GPUs, and how it is measured
    reference   its first bandwidth in GB/s, and since when (JOINED, CHECKED)
    last        the last bandwidth; `broken` is from the same check
    due         Unix time of the next check
    accepted    bandwidth and faults with which a person resumed it: they drain it again only after it was healthy
    own         the benchmark check's drain: its reason and time
    trying      whether the node was resumed only for a check, when no other job could use it
    forgotten   whether a person wants the next figure as the reference
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

    def about(self, of: Mapping[str, Any]) -> Record:
        """Return the record if it is about the same machine and measurement; else an empty one with the same drain."""
        return self if self.of == of else Record(of=of, own=self.own, trying=self.trying)

    def taken_back(self) -> Record:
        """Return the record after a person resumed the node despite its faults."""
        return replace(self, own=None, accepted=self.last, accepted_broken=self.broken)


def measured(result: Result, findings: Sequence[Finding], *, on_gpus: bool) -> Measured:
    """Return the outcome of a check from its result and the findings beside it."""
    broken = [f"{finding['check']}: {finding['seen']}" for finding in findings if finding["severity"] == "error"]
    if result["wrong"]:
        broken.append(f"wrong data ({result['wrong']} out of bounds)")
    valid = result["verdict"] in ("PASS", "UNJUDGED") or (
        # A bandwidth below the floor or over another transport is valid; that of a failed job is not.
        result["verdict"] == "FAIL" and not result["wrong"] and result["reason"].startswith("Measured ")
    )
    return Measured(
        gb_per_s=result["busbw_gb_per_s"] if valid else None,
        floor=result["floor_gb_per_s"],
        tolerance=largest_spread(result["transport"]) if on_gpus else LARGEST_SPREAD_OF_SOCKETS,
        broken=tuple(broken),
        doubt="" if valid else result["reason"],
    )


def against(outcome: Measured, record: Record) -> str:
    """Return the evidence against the node with both figures; empty without evidence."""
    accepted = {_NUMBER.sub("#", fault) for fault in record.accepted_broken}
    broken = [fault for fault in outcome.broken if _NUMBER.sub("#", fault) not in accepted]
    figure = outcome.gb_per_s
    if figure is None:
        return broken[0] if broken else ""
    reference = record.reference
    text = f"{shown(figure)} GB/s"
    if reference is not None:
        text += f", {shown(reference)} {record.since}"
    if broken:
        return f"{broken[0]}; {text}"
    limits = [value for value in (reference, record.accepted) if value is not None]
    if limits and figure < (1 - outcome.tolerance) * min(limits):
        return text
    # A node that never reached its floor was accepted as it is.
    lowest = min(limits, default=None)
    if outcome.floor is not None and figure < outcome.floor and (lowest is None or lowest >= outcome.floor):
        return f"{text}, below its floor of {shown(outcome.floor)}"
    return ""


def better(first: Measured, second: Measured) -> Measured:
    """Return the better of two checks of one node, with the faults of both."""
    broken = tuple(dict.fromkeys([*first.broken, *second.broken]))
    if first.gb_per_s is None or second.gb_per_s is None:
        # A slow check and one without a figure prove nothing.
        return replace(second if first.gb_per_s is not None else first, gb_per_s=None, broken=broken)
    best = max(first, second, key=lambda check: check.gb_per_s or 0.0)
    return replace(best, broken=broken)


def remembered(outcome: Measured, record: Record, due: float) -> Record:
    """Return the record after a check. The first figure becomes the reference."""
    if outcome.gb_per_s is None and not outcome.broken:
        return replace(record, due=due)
    updated = replace(record, broken=outcome.broken, due=due)
    if outcome.gb_per_s is None:
        return updated
    updated = replace(updated, last=outcome.gb_per_s)
    if record.reference is None and not against(outcome, record):
        updated = replace(updated, reference=outcome.gb_per_s, since=CHECKED)
    healthy = replace(updated, accepted=None, accepted_broken=())
    return updated if against(outcome, healthy) else healthy


def reason(evidence: str) -> str:
    """Return the reason of a drain."""
    return as_reason(DEEP_PREFIX + plain(evidence))


def shown(gb_per_s: float) -> str:
    """Return a bandwidth such as `364.8`, with three digits if it is small."""
    return f"{gb_per_s:.1f}" if gb_per_s >= 10 else f"{gb_per_s:.3g}"
