"""Scopes, which are sets of nodes measured together, their measurements, and the reasons to measure them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulumi.runtime.rpc import UNKNOWN

from components.settings.types import CROSS_SITE
from components.settings.validation import Validation, sizes_of
from components.validation.model import Measurement

Floors = tuple[float | None, float | None]  # of a scope, and of single nodes
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


@dataclass(frozen=True)
class Scope:
    """Nodes that are measured together: those of a site, or all nodes.

    others   the number of nodes of another stack that take part
    """

    name: str
    nodes: tuple[str, ...]
    sites: int
    others: int = 0


def scopes(
    node_sites: Mapping[str, str], ranks_per_node: int, promised: Mapping[str, int] | None = None, others: int = 0
) -> tuple[Scope, ...]:
    """Return a scope for each site with at least two ranks, and one across sites if there are several sites.

    node_sites   each node's site, by the node's name
    promised     the number of GPUs that the config promises for a node. A single node with further GPUs gets no scope,
                 because they are found too late
    others       the number of nodes of another stack, in one other site, that take part across sites
    """
    sites: dict[str, list[str]] = {}
    for node, site in node_sites.items():
        sites.setdefault(site, []).append(node)
    result = [
        Scope(site, tuple(sorted(nodes)), 1)
        for site, nodes in sorted(sites.items())
        if len(nodes) * ranks_per_node >= 2 or sum((promised or {}).get(node, 0) for node in nodes) >= 2
    ]
    if len(sites) + min(others, 1) > 1:
        result.append(Scope(CROSS_SITE, tuple(sorted(node_sites)), len(sites) + min(others, 1), others))
    return tuple(result)


def measurement_of(scope: Scope, settings: Validation) -> Measurement:
    """Return the measurement of a scope."""
    return Measurement(
        # Nodes of different sites may have incompatible versions of Open MPI.
        backend="tcp-cpu" if scope.sites > 1 else "mpi-cpu",
        **sizes_of(settings),
        # A single node can be a scope if it has GPUs; then its CPUs still need two ranks.
        ranks=max(2, (len(scope.nodes) + scope.others) * settings.ranks_per_node),
        nodes=len(scope.nodes) + scope.others,
        floor_gb_per_s=settings.floors_gb_per_s.get(scope.name),
    )


def retries(scope: str, before: Mapping[str, Any] | None) -> int:
    """Return how many times a scope's measurement was BUSY and repeated, including this run.

    before   the stack's output `validation` of the previous run
    """
    last = (before or {}).get(scope, {})
    return int(last.get("retries", 0)) + int(last.get("verdict") == "BUSY")


def kept_from(before: Mapping[str, Any] | None, scope: str, digest: str, floors: Floors) -> dict[str, Any]:
    """Return the digest of a measurement's inputs, and the floors at the time of the measurement.

    The head node needs the floors to decide whether to search for slow nodes, but a new floor must not run the step
    again. So the step gets the old floors while the digest stays the same; the verdict uses the new ones.
    """
    last = (before or {}).get(scope, {}).get("measured_with") or {}
    return dict(last) if last.get("digest") == digest else {"digest": digest, "floors": list(floors)}


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
