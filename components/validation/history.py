"""What a scope has measured so far: one short entry a measurement, the newest last, and no more than so many."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

MOST, MOST_OF_NODE = 100, 12  # of a thousand nodes each has its own, and they are kept in the state
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)


class Entry(TypedDict):
    """One measurement: its time, bus bandwidth and floor (GB/s; None for none), the message size, and how many nodes.

    gate_bytes   the message size that was judged, in bytes; missing in entries of release 0.2 and older
    """

    measured_at: str
    busbw_gb_per_s: float | None
    floor_gb_per_s: float | None
    verdict: str
    nodes: int
    gate_bytes: NotRequired[int]


def extended(before: object, result: Mapping[str, Any], most: int = MOST) -> list[Entry]:
    """Return a scope's history with its result in it.

    before   the history of the last run; anything where there was none. One that is judged anew, by another floor,
             takes the place of what it was; where nodes were busy nothing was measured
    """
    found = [entry for each in before if (entry := _entry(each)) is not None] if isinstance(before, list) else []
    nodes = result.get("nodes")
    now = _entry({**result, "nodes": len(nodes) if isinstance(nodes, Sequence) else 0})
    if now is not None and now["verdict"] != "BUSY":
        found = [each for each in found if each["measured_at"] != now["measured_at"]] + [now]
    return found[-most:]


def _entry(told: object) -> Entry | None:
    """An entry of what an earlier run left; None for what is none."""
    if not isinstance(told, Mapping) or not isinstance(told.get("measured_at"), str):
        return None
    if not _MOMENT.fullmatch(told["measured_at"]) or not isinstance(told.get("verdict"), str):
        return None
    nodes, size = told.get("nodes"), _figure(told.get("gate_bytes"))
    entry = Entry(
        measured_at=told["measured_at"],
        busbw_gb_per_s=_figure(told.get("busbw_gb_per_s")),
        floor_gb_per_s=_figure(told.get("floor_gb_per_s")),
        verdict=told["verdict"],
        nodes=int(nodes) if isinstance(nodes, int | float) and math.isfinite(nodes) else 0,
    )
    if size:
        entry["gate_bytes"] = int(size)
    return entry


def _figure(told: object) -> float | None:
    """A number of GB/s; None for what is none."""
    if not isinstance(told, int | float) or isinstance(told, bool) or not math.isfinite(told):
        return None
    return float(told) if told >= 0 else None
