"""The triggers of a measurement's step, and the reasons to measure again (components/cluster/nccl_validation.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

_NODES = "its nodes"
_OF_NODES = ("addresses of its nodes", "GPUs of its nodes", "settings of its jobs")
# Names for people of a measurement's triggers, in their order.
_PARTS = (
    "settings of the measurement",
    "ranks on a node",
    "settings of the GPU measurement",
    "validation.rerun",
    *_OF_NODES[:2],
    _NODES,
    _OF_NODES[2],
    "nodes that were busy",
)
_BY_NODE = slice(4, 7)


def measured_nodes(triggers: Any) -> list[str]:
    """Return the nodes of a measurement from its step's triggers, some of which may be unknown."""
    parts = triggers[_BY_NODE] if isinstance(triggers, list) else []
    return next((list(part) for part in parts if isinstance(part, Mapping)), [])


def why_measured(before: Any, after: Any) -> list[str]:
    """Return the names of a measurement's known triggers that change; none if the measurement is new or removed."""
    if not isinstance(before, list) or not isinstance(after, list):
        return []
    parts = zip(_PARTS, before, after, strict=False)
    changed = [part for part, old, new in parts if old != new and new != UNKNOWN]
    # If the nodes change, so does everything about them.
    return [part for part in changed if part not in _OF_NODES] if _NODES in changed else changed
