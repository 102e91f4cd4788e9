"""The measurement at the end of every `up`: bus bandwidth of all_reduce, inside each site and across sites.

It runs through Slurm like any job. A scope is a set of nodes measured together. A measurement is taken anew when what
it measures changes: its nodes, their addresses, how Slurm starts their processes, or its own settings. An unchanged
cluster is not measured again, unless other jobs kept the last measurement from its nodes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import HeadNode
from components.host import Host
from components.measurement import plan as measuring_plan
from components.measurement.jobs import validation_job
from components.measurement.plan import Node
from components.measurement.scopes import Scope, kept_from, measurement_of, retries, scopes
from components.roles.fabric.site import TAILNET_INTERFACE, shared_interface
from components.roles.slurm.files import measured_settings
from components.settings.network_names import ON_THE_TAILNET
from components.settings.types import CROSS_SITE, NODE
from components.settings.validation import Validation
from components.steps import results
from components.steps.step import Step
from components.steps.values import OutputField, Value, as_dict, as_output
from components.validation import history
from components.validation.expected import ANY_RDMA, ONLY_SOCKETS, ROCE_UNPROVEN
from components.validation.preflight import read as read_preflight
from components.validation.results import Conditions, judge_scope, settings_json


def _members(nodes: Mapping[str, Node]) -> list[str]:
    return [f"{name} {node.site} {node.address}" for name, node in sorted(nodes.items())]


def _digest(parts: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _digest_of(parts: Mapping[int, Any]) -> str:
    return _digest([*parts.values()])


def _nodes(known: Mapping[str, Mapping[str, Any]]) -> dict[str, Node]:
    sites, addresses, gpus, mpi = known["sites"], known["addresses"], known["gpus"], known["mpi"]
    # What version the peer has is not known here.
    return {name: Node(sites[name], addresses[name], gpus[name], mpi.get(name) or "") for name in sorted(sites)}


def _rdma_of(host: Host, proven: Mapping[str, Any]) -> str:
    """What jobs inside the host's site may use of RDMA (components/validation/expected.py)."""
    if host.fabric == ON_THE_TAILNET:
        return ONLY_SOCKETS
    carried = any(found and found["rdma"] for found in proven.values())
    return ROCE_UNPROVEN if host.rdma == ANY_RDMA and not carried else host.rdma


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

    results   Output[dict]: scope to what components.validation.results.judge_scope gives, with `retries`,
              `measured_with` and `history`; and `node`, a mapping by node, where there are nodes with several GPUs

    members   the nodes of this stack that run jobs
    before    `results` of the run before this one, None where there was none
    peer      Output[dict], a node of another stack at a site of its own that those of this one are measured with across
              sites: `name`, `site`, `address`, and `gpus`, such as h200:8; None where there is no other stack
    """

    def __init__(
        self,
        link: HeadLink,
        members: Sequence[HeadNode | ComputeNode],
        settings: Validation,
        before: pulumi.Output[Any],
        peer: pulumi.Output[dict[str, str]] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        # For the state to remember the floors: one that goes is found by cli/checks.
        there = sorted({node.host.site for node in members})
        may_be = [*there, NODE, *([CROSS_SITE] if peer or len(there) > 1 else [])]
        told = {"floors": settings.floors_gb_per_s, "scopes": may_be}
        super().__init__("tailrack:validation:NcclValidation", "validation", told, opts)
        self._link, self._settings, self._before, self._peer = link, settings, before, peer
        wanted = set(settings.nodes) or {node.host.name for node in members}
        self._members = {node.host.name: node for node in members if node.host.name in wanted}
        node_sites = {name: node.host.site for name, node in self._members.items()}
        promised = {name: node.host.gpu.count for name, node in self._members.items() if node.host.gpu}
        measured = scopes(node_sites, settings.ranks_per_node, promised, others=1 if peer else 0)
        # One preflight over all nodes: that of the widest scope.
        widest = max(measured, key=lambda scope: (scope.sites, len(scope.nodes)), default=None)
        results = [self._measure(scope, preflight=scope is widest) for scope in measured]
        self.results: pulumi.Output[dict[str, Any]] = (
            as_output(dict(enumerate(results)), lambda known: _by_scope([*known.values()]))
            if results
            else pulumi.Output.from_input({})
        )
        self.register_outputs({"results": self.results})

    def _measure(self, scope: Scope, preflight: bool) -> pulumi.Output[dict[str, Any]]:
        asked, link = self._settings, self._link
        measurement = measurement_of(scope, asked)
        floors = (measurement.floor_gb_per_s, asked.floors_gb_per_s.get(NODE))
        members = {name: self._members[name] for name in scope.nodes}
        sites = self._with_peer(scope, "site", {name: node.host.site for name, node in members.items()})
        there = self._with_peer(
            scope, "address", {name: OutputField(node.joined, "tailnet_ip") for name, node in members.items()}
        )
        gpus = self._with_peer(scope, "gpus", {name: node.gpus for name, node in members.items()})
        mpi = as_dict({name: OutputField(node.facts, "mpi") for name, node in members.items()})
        known = as_output({"sites": sites, "addresses": there, "gpus": gpus, "mpi": mpi}, _nodes)
        # What was BUSY is no result to keep: another number replaces it.
        again = self._before.apply(partial(retries, scope.name))
        spans = scope.sites > 1
        # Not of the peer: between sites there is only the tailnet.
        proven = as_dict({name: node.fabric for name, node in members.items()})
        # Nothing but the tailnet joins sites. Inside one, Slurm tells its jobs (role fabric).
        host = next(iter(members.values())).host  # inside one site all have its word on RDMA
        rdma = proven.apply(partial(_rdma_of, host))
        expected_interface = proven.apply(
            lambda found: TAILNET_INTERFACE if spans else shared_interface(scope.nodes, found)
        )
        # A floor judges what was measured; another floor needs no other measurement.
        told = {key: value for key, value in settings_json(measurement).items() if key not in ("ranks", "nodes")}
        how = [json.dumps(told, sort_keys=True), asked.ranks_per_node, asked.nccl.model_dump_json(), asked.rerun]
        conditions = as_dict(
            {
                "cgroups": link.cgroups,
                "interface": expected_interface,
                **({} if spans else {"rdma": rdma}),
                "mpi": mpi,
                **measured_settings(link.settings.slurm.settings),
            }
        )
        measured: list[pulumi.Input[Any]] = [*how, there, gpus, sites, conditions, again]
        digest = as_output(dict(enumerate(measured)), _digest_of)
        kept = as_output(
            {"before": self._before, "digest": digest},
            lambda told: kept_from(told["before"], scope.name, told["digest"], floors),
        )
        plan = as_output(
            {
                "nodes": known,
                "kept": kept,
                "expected": expected_interface,
                "proven": proven,
                "sites": sites,
                "rdma": rdma,
            },
            lambda told: json.dumps(
                measuring_plan.plan(
                    scope.name,
                    told["nodes"],
                    asked,
                    measurement,
                    tuple(told["kept"]["floors"]),
                    interface=TAILNET_INTERFACE if spans else "",
                    expected_interface=told["expected"],
                    fabric=_fabrics(told["sites"], told["proven"]),
                    rdma=told["rdma"],
                    preflight=measuring_plan.preflight_program() if preflight else "",
                ),
                sort_keys=True,
            ),
        )
        run_limit = measuring_plan.run_seconds(asked)
        step = Step(
            f"validate-{scope.name}",
            link.machine,
            measuring_plan.script(),
            {
                "SCOPE": scope.name,
                "MEMBERS": known.apply(_members),
                "SETTINGS": _digest(how),
                "RUN_AS": link.settings.users[0].name,
                "PLAN": plan,
                "JOB_SCRIPT": known.apply(
                    lambda nodes: validation_job(
                        scope.name,
                        tuple(sorted(nodes)),
                        measuring_plan.cpu_measurement(measurement, nodes),
                        asked.time_limit_minutes,
                        scope.sites,
                    )
                ),
                "QUEUE_LIMIT": asked.queue_limit_seconds,
                "RUN_LIMIT": run_limit,
                "MEASUREMENT_LIMIT": measuring_plan.measurement_seconds(asked),
            },
            measure=measured,
            # A user's words, which end nobody's run.
            answer=results.MEASUREMENT,
            label=f"measure {scope.name}",
            # It waits for minutes and changes nothing that other steps on this machine change.
            lock=None,
            parent=self,
            # Only the nodes that take part: a site is measured even when a node elsewhere is down. Measurements do
            # not depend on one another, they keep out of each other's way by a lock (validate.sh): where one of
            # them fails and another goes, the CLI (3.260) would leave a state that it cannot read any more.
            depends_on=[*([link.ready] if link.ready else []), *(node.ready for node in members.values())],
            limit_seconds=asked.queue_limit_seconds + measuring_plan.measurement_seconds(asked) + run_limit + 360,
        )

        def judged(told: Mapping[str, Any]) -> dict[str, Any]:
            on_gpus = measuring_plan.gpu_measurement(told["nodes"], asked)
            on_cpus = measuring_plan.cpu_measurement(measurement, told["nodes"])
            by_mpi = measuring_plan.mpi_apart(told["nodes"], asked, on_gpus or on_cpus)
            conditions = Conditions(
                *floors, told["expected"], spans, asked.floors_from or "config", told["rdma"], by_mpi
            )
            result, by_node = judge_scope(on_gpus or on_cpus, told["report"], conditions, read_preflight)
            before = told["before"] or {}
            told_besides = {
                "retries": told["retries"],
                "measured_with": told["kept"],
                "history": history.extended((before.get(scope.name) or {}).get("history"), result),
            }
            own = {name: (before.get(NODE) or {}).get(name) or {} for name in by_node}
            nodes = {
                name: {**each, "history": history.extended(own[name].get("history"), each, history.MOST_OF_NODE)}
                for name, each in by_node.items()
            }
            return {"scope": scope.name, "result": {**result, **told_besides}, "nodes": nodes}

        return as_output(
            {
                "nodes": known,
                "report": step.result,
                "retries": again,
                "kept": kept,
                "before": self._before,
                "expected": expected_interface,
                "rdma": rdma,
            },
            judged,
        )

    def _with_peer(self, scope: Scope, word: str, own: Mapping[str, Value]) -> pulumi.Output[dict[str, Any]]:
        """A value by node, with that of the peer where it takes part."""
        mine = as_dict(own)
        if self._peer is None or not scope.others:
            return mine
        return as_output(
            {"mine": mine, "peer": self._peer},
            lambda known: {**known["mine"], known["peer"]["name"]: known["peer"][word]},
        )


def _by_scope(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All results: those of nodes by themselves under one key, where there are any."""
    by_node = {name: result for each in measured for name, result in each["nodes"].items()}
    return {**({NODE: by_node} if by_node else {}), **{each["scope"]: each["result"] for each in measured}}
