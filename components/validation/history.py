"""The history of a scope: a short entry per measurement, the newest last, with a limited length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from components.validation.untrusted import read

MOST, MOST_OF_NODE = 100, 12  # a thousand nodes have one each, all stored in the state
# One measurement: its time, bus bandwidth and floor (GB/s or None), the judged message size, and the number of nodes.
Entry = dict[str, Any]
_KEYS = ("measured_at", "busbw_gb_per_s", "floor_gb_per_s", "verdict", "gate_bytes")


@dataclass(frozen=True)
class _Entry:
    measured_at: Annotated[str, r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"]
    verdict: str
    busbw_gb_per_s: float | None
    floor_gb_per_s: float | None
    nodes: float  # the outputs of the last run have only floats
    gate_bytes: float | None = None


def _is_entry(item: object) -> bool:
    try:
        return bool(read(_Entry, item))
    except ValueError:
        return False


def extended(history: object, result: Mapping[str, Any], most: int = MOST) -> list[Entry]:
    """Return a scope's history with its result added.

    history   history of the last run, or anything without one. A result that was judged again replaces its entry; BUSY
              is not added
    """
    entries = [entry for entry in history if _is_entry(entry)] if isinstance(history, list) else []
    if result.get("measured_at") and result["verdict"] != "BUSY":
        new = {**{key: result[key] for key in _KEYS if key in result}, "nodes": len(result["nodes"])}
        entries = [entry for entry in entries if entry.get("measured_at") != new["measured_at"]] + [new]
    return entries[-most:]
