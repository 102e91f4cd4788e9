"""The measurement at the end of every `up`: bus bandwidth of all_reduce, inside each site and across sites.

It runs through Slurm like any job. A scope is a set of nodes measured together. A measurement is taken anew when what
it measures changes: its nodes, their addresses, how Slurm starts their processes, or its own settings. An unchanged
cluster is not measured again, unless other jobs kept the last measurement from its nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pulumi

from components import steps
from components.cluster_settings import ClusterSettings
from components.compute_node import ComputeNode
from components.head_node import HeadNode
from components.remote import Step
from components.settings.types import words
from components.settings.validation import Validation
from components.validation.model import JobReport, Measurement
from components.validation.verdict import judge
from components.validation_job import validation_job

CROSS_SITE = "cross-site"
# Keys of slurm.conf that reach the processes of a job: which cores they get, their limits, what runs before them.
# Time limits, priorities, logging and so on change no figure.
MEASURED_SETTINGS = words(
    """cpufreqdef cpufreqgovernors epilog launchparameters mpiparams prolog prologflags propagateresourcelimits
    propagateresourcelimitsexcept selecttype selecttypeparameters switchtype taskpluginparam taskprolog"""
)
PROGRAM = Path(__file__).parent / "validation" / "all_reduce_perf_cpu.py"
RING = PROGRAM.with_name("tcp_ring.py")


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
        ranks=len(scope.nodes) * settings.ranks_per_node,
        nodes=len(scope.nodes),
        floor_gb_per_s=settings.floors_gb_per_s.get(scope.name),
    )


def retries(scope: str, before: Mapping[str, Any] | None) -> int:
    """Return how often a scope's measurement was BUSY and tried again, this run included.

    before   the stack's output `validation` of the last run
    """
    last = (before or {}).get(scope, {})
    return int(last.get("retries", 0)) + int(last.get("verdict") == "BUSY")


def _members(sites: Mapping[str, str], addresses: Mapping[str, str]) -> list[str]:
    return [f"{name} {sites[name]} {address}" for name, address in sorted(addresses.items())]


def _judged(measurement: Measurement, known: dict[str, Any]) -> dict[str, Any]:
    return {**judge(measurement, JobReport.from_json(known["report"])), "retries": known["retries"]}


class NcclValidation(pulumi.ComponentResource):
    """One measurement for each scope.

    results   Output[dict]: scope to the dictionary of components.validation.verdict.judge, and `retries`

    before    `results` of the run before this one, None where there was none
    """

    def __init__(
        self,
        head: HeadNode,
        nodes: Sequence[ComputeNode],
        settings: ClusterSettings,
        before: pulumi.Output[Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("tailrack:validation:NcclValidation", "validation", None, opts)
        members = {node.host.name: node for node in nodes}
        addresses: dict[str, pulumi.Input[str]] = {name: node.joined["tailnet_ip"] for name, node in members.items()}
        node_sites = {name: node.host.site for name, node in members.items()}
        if settings.head.compute:
            addresses[head.host.name] = head.link.address
            node_sites[head.host.name] = head.host.site
        results = {}
        asked = settings.validation
        own = {key.lower(): value for key, value in settings.slurm.settings.items()}
        processes = {key: own[key] for key in sorted(own.keys() & MEASURED_SETTINGS)}
        for scope in scopes(node_sites, asked.ranks_per_node):
            measurement = measurement_of(scope, asked)
            there = pulumi.Output.all(**{name: addresses[name] for name in scope.nodes})
            # What was BUSY is no result to keep: another number replaces it.
            again = before.apply(partial(retries, scope.name))
            step = Step(
                f"validate-{scope.name}",
                head.host,
                steps.single("validate"),
                {
                    "SCOPE": scope.name,
                    "MEMBERS": there.apply(partial(_members, node_sites)),
                    "RANKS_PER_NODE": asked.ranks_per_node,
                    "RUN_AS": settings.users[0].name,
                    "JOB_SCRIPT": validation_job(
                        scope.name, scope.nodes, measurement, asked.time_limit_minutes, scope.sites
                    ),
                    "PROGRAM": PROGRAM.read_text(encoding="utf-8"),
                    "RING": RING.read_text(encoding="utf-8"),
                    "QUEUE_LIMIT": asked.queue_limit_seconds,
                    "RUN_LIMIT": asked.time_limit_minutes * 60 + 60,
                },
                measure=[
                    # A floor judges what was measured; another floor needs no other measurement.
                    json.dumps(asdict(replace(measurement, floor_gb_per_s=None)), sort_keys=True),
                    asked.rerun,
                    there,
                    {name: node_sites[name] for name in scope.nodes},
                    pulumi.Output.all(cgroups=head.link.cgroups, **processes),
                    again,
                ],
                label=f"measure {scope.name}",
                # It waits for minutes and changes nothing that other steps on this machine change.
                lock=None,
                parent=self,
                # Only the nodes that take part: a site is measured even when a node elsewhere is down. Measurements do
                # not depend on one another, they keep out of each other's way by a lock (validate.sh): where one of
                # them fails and another goes, the CLI (3.260) would leave a state that it cannot read any more.
                depends_on=[
                    head.ready,
                    *(members[name].ready for name in scope.nodes if name in members),
                ],
                limit_seconds=asked.queue_limit_seconds + 2 * asked.time_limit_minutes * 60 + 360,
            )
            known = pulumi.Output.all(report=step.result, retries=again)
            results[scope.name] = known.apply(partial(_judged, measurement))
        self.results: pulumi.Output[dict[str, Any]] = (
            pulumi.Output.all(**results) if results else pulumi.Output.from_input({})
        )
        self.register_outputs({"results": self.results})
