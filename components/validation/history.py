"""The history of a scope: a short entry per measurement, the newest last, with a limited length."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

MOST, MOST_OF_NODE = 100, 12  # a thousand nodes have one each, all stored in the state
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)


class Entry(TypedDict):
    """One measurement: its time, bus bandwidth and floor (GB/s or None), and the number of nodes.

    gate_bytes   the judged message size in bytes; missing in entries of release 0.2 and older
    """

    measured_at: str
    busbw_gb_per_s: float | None
    floor_gb_per_s: float | None
    verdict: str
    nodes: int
    gate_bytes: NotRequired[int]


def extended(history: object, result: Mapping[str, Any], most: int = MOST) -> list[Entry]:
    """Return a scope's history with its result added.

    history   history of the last run, or anything without one. A result that was judged again replaces its entry; BUSY
              is not added
    """
    entries = [entry for item in history if (entry := _entry(item)) is not None] if isinstance(history, list) else []
    nodes = result.get("nodes")
    new = _entry({**result, "nodes": len(nodes) if isinstance(nodes, Sequence) else 0})
    if new is not None and new["verdict"] != "BUSY":
        entries = [item for item in entries if item["measured_at"] != new["measured_at"]] + [new]
    return entries[-most:]


def _entry(data: object) -> Entry | None:
    if not isinstance(data, Mapping) or not isinstance(data.get("measured_at"), str):
        return None
    if not _MOMENT.fullmatch(data["measured_at"]) or not isinstance(data.get("verdict"), str):
        return None
    nodes, size = data.get("nodes"), _figure(data.get("gate_bytes"))
    entry = Entry(
        measured_at=data["measured_at"],
        busbw_gb_per_s=_figure(data.get("busbw_gb_per_s")),
        floor_gb_per_s=_figure(data.get("floor_gb_per_s")),
        verdict=data["verdict"],
        nodes=int(nodes) if isinstance(nodes, int | float) and math.isfinite(nodes) else 0,
    )
    if size:
        entry["gate_bytes"] = int(size)
    return entry


def _figure(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value) if value >= 0 else None
