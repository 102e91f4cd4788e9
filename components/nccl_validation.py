"""The measurement at the end of every `up`: bus bandwidth of all_reduce, inside each site and across sites.

It runs through Slurm like any job. A scope is a set of nodes measured together. A measurement is taken anew when what
it measures changes: its nodes, their addresses, how Slurm starts their processes, or its own settings. An unchanged
cluster is not measured again, unless other jobs kept the last measurement from its nodes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pulumi

from components import answers, measuring_plan, steps
from components.cluster_settings import ClusterSettings
from components.compute_node import ComputeNode
from components.head_node import HeadNode
from components.measuring_plan import Node
from components.remote import Step
from components.settings.types import CROSS_SITE, NODE, words
from components.settings.validation import Validation
from components.site_fabric import TAILNET_INTERFACE, shared_interface
from components.validation.model import Measurement
from components.validation.preflight import program as preflight_program
from components.validation.preflight import read as read_preflight
from components.validation.results import Conditions, asked_json, judge_scope
from components.validation_job import validation_job

Floors = tuple[float | None, float | None]  # of a scope, and of nodes by themselves
# Keys of slurm.conf that reach the processes of a job: which cores they get, their limits, what runs before them.
# Time limits, priorities, logging and so on change no figure.
MEASURED_SETTINGS = words(
    """cpufreqdef cpufreqgovernors epilog launchparameters mpiparams prolog prologflags propagateresourcelimits
    propagateresourcelimitsexcept selecttype selecttypeparameters switchtype taskpluginparam taskprolog"""
)
PROGRAM = Path(__file__).parent / "validation" / "all_reduce_perf_cpu.py"
RING = PROGRAM.with_name("tcp_ring.py")
START = PROGRAM.with_name("start.py")


@dataclass(frozen=True)
class Scope:
    """Nodes measured together: all of a site, or all there are."""

    name: str
    nodes: tuple[str, ...]
    sites: int


def scopes(
    node_sites: Mapping[str, str], ranks_per_node: int, promised: Mapping[str, int] | None = None
) -> tuple[Scope, ...]:
    """Return a scope for each site that has at least two ranks, and one across sites where there are several.

    node_sites   each node's name to its site
    promised     how many GPUs the config promises of a node; what a machine has beyond that is known too late to make
                 a measurement of it alone
    """
    sites: dict[str, list[str]] = {}
    for node, site in node_sites.items():
        sites.setdefault(site, []).append(node)
    found = [
        Scope(site, tuple(sorted(nodes)), 1)
        for site, nodes in sorted(sites.items())
        if len(nodes) * ranks_per_node >= 2 or sum((promised or {}).get(node, 0) for node in nodes) >= 2
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
        # A node with GPUs may be alone; without them it could not be measured.
        ranks=max(2, len(scope.nodes) * settings.ranks_per_node),
        nodes=len(scope.nodes),
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


def _members(sites: Mapping[str, str], addresses: Mapping[str, str]) -> list[str]:
    return [f"{name} {sites[name]} {address}" for name, address in sorted(addresses.items())]


def _digest(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _nodes(sites: Mapping[str, str], known: Mapping[str, Mapping[str, str]]) -> dict[str, Node]:
    return {name: Node(sites[name], known["addresses"][name], known["gpus"][name]) for name in sorted(sites)}


def _fabrics(sites: Mapping[str, str], proven: Mapping[str, Any]) -> dict[str, str]:
    """Site to the interface that all its nodes of the scope share; empty where that is the tailnet's."""
    shared = {}
    for site in sorted(set(sites.values())):
        own = {node: found for node, found in proven.items() if sites[node] == site}
        name = shared_interface(own.keys(), own)
        shared[site] = "" if name == TAILNET_INTERFACE or "," in name or len(own) < 2 else name
    return shared


class NcclValidation(pulumi.ComponentResource):
    """One measurement for each scope.

    results   Output[dict]: scope to what components.validation.results.judge_scope gives, with `retries` and
              `measured_with`; and `node`, a mapping by node, where there are nodes with several GPUs

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
        asked = settings.validation
        self._head, self._settings, self._before = head, settings, before
        self._members = {node.host.name: node for node in nodes}
        members: dict[str, HeadNode | ComputeNode] = dict(self._members)
        if settings.head.compute:
            members[head.host.name] = head
        # For the state to remember the floors: one that goes is found by driver/checks.
        there = sorted({node.host.site for node in members.values()})
        floors = {"floors": asked.floors_gb_per_s, "sites": there}
        super().__init__("tailrack:validation:NcclValidation", "validation", floors, opts)
        wanted = set(asked.nodes) or set(members)
        self._sites = {name: node.host.site for name, node in members.items() if name in wanted}
        self._addresses = {name: members[name].joined["tailnet_ip"] for name in self._sites}
        self._gpus = {name: members[name].gpus for name in self._sites}
        self._fabric = {name: members[name].fabric for name in self._sites}
        promised = {name: node.host.gpu.count for name, node in members.items() if node.host.gpu}
        measured = scopes(self._sites, asked.ranks_per_node, promised)
        # One preflight over all nodes: that of the widest scope.
        widest = max(measured, key=lambda scope: (scope.sites, len(scope.nodes)), default=None)
        results = [self._measure(scope, preflight=scope is widest) for scope in measured]
        self.results: pulumi.Output[dict[str, Any]] = (
            pulumi.Output.all(*results).apply(_by_scope) if results else pulumi.Output.from_input({})
        )
        self.register_outputs({"results": self.results})

    def _measure(self, scope: Scope, preflight: bool) -> pulumi.Output[dict[str, Any]]:
        asked, head = self._settings.validation, self._head
        measurement = measurement_of(scope, asked)
        floors = (measurement.floor_gb_per_s, asked.floors_gb_per_s.get(NODE))
        sites = {name: self._sites[name] for name in scope.nodes}
        there = pulumi.Output.all(**{name: self._addresses[name] for name in scope.nodes})
        gpus = pulumi.Output.all(**{name: self._gpus[name] for name in scope.nodes})
        known = pulumi.Output.all(addresses=there, gpus=gpus).apply(partial(_nodes, sites))
        # What was BUSY is no result to keep: another number replaces it.
        again = self._before.apply(partial(retries, scope.name))
        own = {key.lower(): value for key, value in self._settings.slurm.settings.items()}
        processes = {key: own[key] for key in sorted(own.keys() & MEASURED_SETTINGS)}
        spans = scope.sites > 1
        proven = pulumi.Output.all(**{name: self._fabric[name] for name in scope.nodes})
        # Nothing but the tailnet joins sites. Inside one, Slurm tells its jobs (role fabric).
        expected_interface = proven.apply(
            lambda found: TAILNET_INTERFACE if spans else shared_interface(scope.nodes, found)
        )
        # A floor judges what was measured; another floor needs no other measurement.
        told = {key: value for key, value in asked_json(measurement).items() if key not in ("ranks", "nodes")}
        how = [json.dumps(told, sort_keys=True), asked.ranks_per_node, asked.nccl.model_dump_json(), asked.rerun]
        measured: list[pulumi.Input[Any]] = [
            *how,
            there,
            gpus,
            sites,
            pulumi.Output.all(cgroups=head.link.cgroups, interface=expected_interface, **processes),
            again,
        ]
        kept = pulumi.Output.all(self._before, pulumi.Output.all(*measured).apply(_digest)).apply(
            lambda told: kept_from(told[0], scope.name, told[1], floors)
        )
        plan = pulumi.Output.all(nodes=known, kept=kept, expected=expected_interface, proven=proven).apply(
            lambda told: json.dumps(
                measuring_plan.plan(
                    scope.name,
                    told["nodes"],
                    asked,
                    measurement,
                    tuple(told["kept"]["floors"]),
                    interface=TAILNET_INTERFACE if spans else "",
                    expected_interface=told["expected"],
                    fabric=_fabrics(sites, told["proven"]),
                    preflight=preflight_program() if preflight else "",
                ),
                sort_keys=True,
            )
        )
        run_limit = measuring_plan.run_seconds(asked)
        step = Step(
            f"validate-{scope.name}",
            head.host,
            steps.single("validate"),
            {
                "SCOPE": scope.name,
                "MEMBERS": there.apply(partial(_members, sites)),
                "SETTINGS": _digest(how),
                "RUN_AS": self._settings.users[0].name,
                "PLAN": plan,
                "DRIVER": measuring_plan.driver(),
                "START": START.read_text(encoding="utf-8"),
                "JOB_SCRIPT": validation_job(
                    scope.name, scope.nodes, measurement, asked.time_limit_minutes, scope.sites
                ),
                "PROGRAM": PROGRAM.read_text(encoding="utf-8"),
                "RING": RING.read_text(encoding="utf-8"),
                "QUEUE_LIMIT": asked.queue_limit_seconds,
                "RUN_LIMIT": run_limit,
                "CAMPAIGN_LIMIT": measuring_plan.campaign_seconds(asked),
            },
            measure=measured,
            # A user's words, which end nobody's run.
            parse=answers.said,
            label=f"measure {scope.name}",
            # It waits for minutes and changes nothing that other steps on this machine change.
            lock=None,
            parent=self,
            # Only the nodes that take part: a site is measured even when a node elsewhere is down. Measurements do
            # not depend on one another, they keep out of each other's way by a lock (validate.sh): where one of
            # them fails and another goes, the CLI (3.260) would leave a state that it cannot read any more.
            depends_on=[
                head.ready,
                *(self._members[name].ready for name in scope.nodes if name in self._members),
            ],
            limit_seconds=asked.queue_limit_seconds + measuring_plan.campaign_seconds(asked) + run_limit + 360,
        )

        def judged(told: Mapping[str, Any]) -> dict[str, Any]:
            on_gpus = measuring_plan.gpu_measurement(told["nodes"], asked)
            conditions = Conditions(*floors, told["expected"], spans, asked.floors_from or "config")
            result, by_node = judge_scope(on_gpus or measurement, told["report"], conditions, read_preflight)
            told_besides = {"retries": told["retries"], "measured_with": told["kept"]}
            return {"scope": scope.name, "result": {**result, **told_besides}, "nodes": by_node}

        return pulumi.Output.all(
            nodes=known, report=step.result, retries=again, kept=kept, expected=expected_interface
        ).apply(judged)


def _by_scope(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All results: those of nodes by themselves under one key, where there are any."""
    by_node = {name: result for each in measured for name, result in each["nodes"].items()}
    return {**({NODE: by_node} if by_node else {}), **{each["scope"]: each["result"] for each in measured}}
