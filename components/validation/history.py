"""The history of a scope: a short entry per measurement, the newest last, with a limited length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST, MOST_OF_NODE = 100, 12  # a thousand nodes have one each, all stored in the state
# One measurement: its time, bus bandwidth and floor (GB/s or None), the judged message size, and the number of nodes.
Entry = dict[str, Any]
_KEYS = ("measured_at", "busbw_gb_per_s", "floor_gb_per_s", "verdict", "gate_bytes")


def extended(history: object, result: Mapping[str, Any], most: int = MOST) -> list[Entry]:
    """Return a scope's history with its result added.

    history   history of the last run, or anything without one. A result that was judged again replaces its entry; BUSY
              is not added
    """
    entries = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    if result.get("measured_at") and result["verdict"] != "BUSY":
        new = {**{key: result[key] for key in _KEYS if key in result}, "nodes": len(result["nodes"])}
        entries = [entry for entry in entries if entry.get("measured_at") != new["measured_at"]] + [new]
    return entries[-most:]
