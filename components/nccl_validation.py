"""The measurement at the end of every `up`: bus bandwidth of all_reduce, inside each site and across sites.

It runs through Slurm like any job. A scope is a set of nodes measured together. A measurement is replaced, never
updated, when its nodes, Slurm's configuration or its own settings change; an unchanged cluster is not measured again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pulumi

from components.compute_node import ComputeNode
from components.config_files.validation_job import validation_job
from components.head_node import HeadNode
from components.remote import Step
from components.validation.model import JobReport, Measurement
from components.validation.verdict import judge

CROSS_SITE = "cross-site"
PROGRAM = Path(__file__).parent / "validation" / "all_reduce_perf_cpu.py"
RING = PROGRAM.with_name("tcp_ring.py")


@dataclass(frozen=True)
class ValidationSettings:
    """Sizes in bytes; floors in GB/s (10^9 bytes) by scope, a scope without one is measured and not judged.

    rerun                 any text; another one measures again
    queue_limit_seconds   how long the job may wait for its nodes: other people's jobs may be on them
    """

    min_bytes: int
    max_bytes: int
    factor: int
    iterations: int
    warmup: int
    gate_bytes: int
    ranks_per_node: int
    time_limit_minutes: int
    floors_gb_per_s: Mapping[str, float]
    rerun: str = ""
    queue_limit_seconds: int = 600


@dataclass(frozen=True)
class Scope:
    """Nodes measured together: all of a site, or all there are."""

    name: str
    nodes: tuple[str, ...]
    sites: int


def scopes(node_sites: Mapping[str, str], ranks_per_node: int) -> tuple[Scope, ...]:
    """Return a scope for each site that has at least two ranks, and one across sites where there are several.

    node_sites maps each node's name to its site.
    """
    sites: dict[str, list[str]] = {}
    for node, site in node_sites.items():
        sites.setdefault(site, []).append(node)
    found = [
        Scope(site, tuple(sorted(nodes)), 1)
        for site, nodes in sorted(sites.items())
        if len(nodes) * ranks_per_node >= 2
    ]
    if len(sites) > 1:
        found.append(Scope(CROSS_SITE, tuple(sorted(node_sites)), len(sites)))
    return tuple(found)


def measurement_of(scope: Scope, settings: ValidationSettings) -> Measurement:
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
        ranks=len(scope.nodes) * settings.ranks_per_node,
        nodes=len(scope.nodes),
        floor_gb_per_s=settings.floors_gb_per_s.get(scope.name),
    )


def _judged(measurement: Measurement, report: dict[str, Any]) -> dict[str, Any]:
    return dict(judge(measurement, JobReport.from_json(report)))


class NcclValidation(pulumi.ComponentResource):
    """One measurement for each scope.

    results   Output[dict]: scope to the dictionary of components.validation.verdict.judge
    """

    def __init__(
        self,
        head: HeadNode,
        nodes: Sequence[ComputeNode],
        *,
        head_computes: bool,
        run_as: str,
        settings: ValidationSettings,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:validation:NcclValidation", "validation", None, opts)
        members = {node.host.name: node for node in nodes}
        addresses = {name: node.joined["tailnet_ip"] for name, node in members.items()}
        node_sites = {name: node.host.site for name, node in members.items()}
        if head_computes:
            addresses[head.host.name] = head.address
            node_sites[head.host.name] = head.host.site
        results = {}
        measured: list[pulumi.Resource] = []
        for scope in scopes(node_sites, settings.ranks_per_node):
            measurement = measurement_of(scope, settings)
            step = Step(
                f"validate-{scope.name}",
                head.host,
                "validate",
                {
                    "SCOPE": scope.name,
                    "RUN_AS": run_as,
                    "JOB_SCRIPT": validation_job(
                        scope.name, scope.nodes, measurement, settings.time_limit_minutes, scope.sites
                    ),
                    "PROGRAM": PROGRAM.read_text(encoding="utf-8"),
                    "RING": RING.read_text(encoding="utf-8"),
                    "QUEUE_LIMIT": settings.queue_limit_seconds,
                    "RUN_LIMIT": settings.time_limit_minutes * 60 + 60,
                },
                measure=[
                    # A floor judges what was measured; another floor needs no other measurement.
                    json.dumps(asdict(replace(measurement, floor_gb_per_s=None)), sort_keys=True),
                    settings.rerun,
                    pulumi.Output.all(**{name: addresses[name] for name in scope.nodes}),
                    head.slurm_files["slurm.conf"],
                ],
                parent=self,
                # Only the nodes that take part: a site is measured even when a node elsewhere is down. Across sites
                # it comes after the sites, so that one measurement does not wait in the queue for another.
                depends_on=[
                    head.ready,
                    *(members[name].ready for name in scope.nodes if name in members),
                    *(measured if scope.sites > 1 else ()),
                ],
                limit_seconds=settings.queue_limit_seconds + settings.time_limit_minutes * 60 + 300,
            )
            measured.append(step.resource)
            results[scope.name] = step.result.apply(partial(_judged, measurement))
        self.results: pulumi.Output[dict[str, Any]] = (
            pulumi.Output.all(**results) if results else pulumi.Output.from_input({})
        )
        self.register_outputs({"results": self.results})
