"""Why a measurement is taken anew: what its step's triggers are, by place (components/cluster/nccl_validation.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

_NODES = "its nodes"
_OF_NODES = ("addresses of its nodes", "GPUs of its nodes", "what its jobs run with")
# What the parts of a measurement's triggers are, in their order, to whoever reads why it is taken anew.
_PARTS = (
    "how it is measured",
    "ranks on a node",
    "how GPUs are measured",
    "validation.rerun",
    *_OF_NODES[:2],
    _NODES,
    _OF_NODES[2],
    "nodes that were busy",
)
_BY_NODE = slice(4, 7)


def measured_nodes(triggers: Any) -> list[str]:
    """Return the nodes of a measurement by its step's triggers, of which some may not be known yet."""
    parts = triggers[_BY_NODE] if isinstance(triggers, list) else []
    return next((list(part) for part in parts if isinstance(part, Mapping)), [])


def why_measured(before: Any, after: Any) -> list[str]:
    """Return what differs in what is known of a measurement's triggers; nothing where it comes or goes."""
    if not isinstance(before, list) or not isinstance(after, list):
        return []
    parts = zip(_PARTS, before, after, strict=False)
    found = [part for part, old, new in parts if old != new and new != UNKNOWN]
    # With other nodes all that is said of them is another.
    return [part for part in found if part not in _OF_NODES] if _NODES in found else found
