"""Sets of nodes that are measured together, what is asked of each, and what the run before says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.settings.types import CROSS_SITE
from components.settings.validation import Validation
from components.validation.model import Measurement

Floors = tuple[float | None, float | None]  # of a scope, and of nodes by themselves


@dataclass(frozen=True)
class Scope:
    """Nodes measured together: all of a site, or all there are.

    others   nodes of another stack that take part
    """

    name: str
    nodes: tuple[str, ...]
    sites: int
    others: int = 0


def scopes(
    node_sites: Mapping[str, str], ranks_per_node: int, promised: Mapping[str, int] | None = None, others: int = 0
) -> tuple[Scope, ...]:
    """Return a scope for each site that has at least two ranks, and one across sites where there are several.

    node_sites   each node's name to its site
    promised     how many GPUs the config promises of a node; what a machine has beyond that is known too late to make
                 a measurement of it alone
    others       nodes of another stack, at one site that is none of these, that all of these are measured with
    """
    sites: dict[str, list[str]] = {}
    for node, site in node_sites.items():
        sites.setdefault(site, []).append(node)
    found = [
        Scope(site, tuple(sorted(nodes)), 1)
        for site, nodes in sorted(sites.items())
        if len(nodes) * ranks_per_node >= 2 or sum((promised or {}).get(node, 0) for node in nodes) >= 2
    ]
    if len(sites) + min(others, 1) > 1:
        found.append(Scope(CROSS_SITE, tuple(sorted(node_sites)), len(sites) + min(others, 1), others))
    return tuple(found)


def measurement_of(scope: Scope, settings: Validation) -> Measurement:
    """Return what is asked of a scope's measurement."""
    return Measurement(
        # Between sites nodes may have versions of Open MPI that do not speak with each other.
        backend="tcp-cpu" if scope.sites > 1 else "mpi-cpu",
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        factor=settings.factor,
        iterations=settings.iterations,
        warmup=settings.warmup,
        gate_bytes=settings.gate_bytes,
        # A node with GPUs may be alone; without them it could not be measured.
        ranks=max(2, (len(scope.nodes) + scope.others) * settings.ranks_per_node),
        nodes=len(scope.nodes) + scope.others,
        floor_gb_per_s=settings.floors_gb_per_s.get(scope.name),
    )


def retries(scope: str, before: Mapping[str, Any] | None) -> int:
    """Return how often a scope's measurement was BUSY and tried again, this run included.

    before   the stack's output `validation` of the last run
    """
    last = (before or {}).get(scope, {})
    return int(last.get("retries", 0)) + int(last.get("verdict") == "BUSY")


def kept_from(before: Mapping[str, Any] | None, scope: str, digest: str, floors: Floors) -> dict[str, Any]:
    """Return the digest of what is measured, and the floors that were in force when it was.

    The head node needs floors to know whether to look for slow nodes, but another floor is no reason to run the step
    again: as long as the same is measured, the step is told the old ones. Judged is by the new ones all the same.
    """
    last = (before or {}).get(scope, {}).get("measured_with") or {}
    return dict(last) if last.get("digest") == digest else {"digest": digest, "floors": list(floors)}
