"""The measurement at the end of each `up`: bus bandwidth of all_reduce, inside each site and across sites.

It runs through Slurm like any job. A scope is a set of nodes that are measured together. A scope is measured again if
its nodes, their addresses, the way in which Slurm starts processes, or the measurement's settings change. An unchanged
cluster is measured again only if other jobs kept the last measurement from its nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import HeadNode
from components.cluster.job_measurement import digest, measuring_step, member_lines, nodes_of
from components.host import Host
from components.measurement_jobs import plan as measurement_plan
from components.measurement_jobs.plan import validation_job
from components.measurement_jobs.scopes import Scope, kept_from, measurement_of, retries, scopes
from components.roles.network.fabric.facts import TAILNET_INTERFACE, shared_interface
from components.roles.slurm.slurm.slurm_conf import measured_settings
from components.settings.network_names import ON_THE_TAILNET
from components.settings.types import CROSS_SITE, NODE
from components.settings.validation import Validation
from components.steps.values import OutputField, Value, as_dict, as_output
from components.validation.preflight import read as read_preflight
from components.validation.results import (
    MOST_OF_NODE,
    Conditions,
    extended,
    judge_scope,
    not_measured_alone,
    settings_json,
)
from components.validation.transport import ANY_RDMA, ONLY_SOCKETS, ROCE_UNPROVEN


def _rdma_of(host: Host, proven: Mapping[str, Any]) -> str:
    """Return the RDMA that jobs inside the host's site may use (components/validation/transport.py)."""
    if host.fabric == ON_THE_TAILNET:
        return ONLY_SOCKETS
    carried = any(fabric and fabric["rdma"] for fabric in proven.values())
    return ROCE_UNPROVEN if host.rdma == ANY_RDMA and not carried else host.rdma


def _fabrics(sites: Mapping[str, str], proven: Mapping[str, Any]) -> dict[str, str]:
    """Return, by site, the interface that all its nodes in the scope share; empty if that is the tailnet's."""
    shared = {}
    for site in sorted(set(sites.values())):
        in_site = {node: fabric for node, fabric in proven.items() if sites[node] == site}
        name = shared_interface(in_site.keys(), in_site)
        shared[site] = "" if name == TAILNET_INTERFACE or "," in name or len(in_site) < 2 else name
    return shared


class NcclValidation(pulumi.ComponentResource):
    """One measurement for each scope.

    results   Output[dict]: by scope, the result of components.validation.results.judge_scope, with `retries`,
              `measured_with` and `history`; and `node`, a mapping by node, if nodes have several GPUs

    members   the nodes of this stack that run jobs
    before    `results` of the previous run, or None
    peer      Output[dict]: a node of another stack, in another site, that takes part in the measurement across sites:
              `name`, `site`, `address`, and `gpus`, such as h200:8; None without another stack
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
        # The state keeps the floors, so that cli/changes_to_allow finds a floor that was removed.
        sites = sorted({node.host.site for node in members})
        possible_scopes = [*sites, NODE, *([CROSS_SITE] if peer or len(sites) > 1 else [])]
        inputs = {"floors": settings.floors_gb_per_s, "scopes": possible_scopes}
        super().__init__("tailrack:validation:NcclValidation", "validation", inputs, opts)
        self._link, self._settings, self._before, self._peer = link, settings, before, peer
        wanted = set(settings.nodes) or {node.host.name for node in members}
        self._members = {node.host.name: node for node in members if node.host.name in wanted}
        node_sites = {name: node.host.site for name, node in self._members.items()}
        promised = {name: node.host.gpu.count for name, node in self._members.items() if node.host.gpu}
        measured = scopes(node_sites, settings.ranks_per_node, promised, others=1 if peer else 0)
        # Only the widest scope runs the preflight, for all nodes.
        widest = max(measured, key=lambda scope: (scope.sites, len(scope.nodes)), default=None)
        results = [self._measure(scope, preflight=scope is widest) for scope in measured]
        self.results: pulumi.Output[dict[str, Any]] = (
            as_output(dict(enumerate(results)), lambda resolved: _by_scope([*resolved.values()]))
            if results
            else pulumi.Output.from_input({})
        )
        self.register_outputs({"results": self.results})

    def _measure(self, scope: Scope, preflight: bool) -> pulumi.Output[dict[str, Any]]:
        settings, link = self._settings, self._link
        measurement = measurement_of(scope, settings)
        floors = (measurement.floor_gb_per_s, settings.floors_gb_per_s.get(NODE))
        members = {name: self._members[name] for name in scope.nodes}
        sites = self._with_peer(scope, "site", {name: node.host.site for name, node in members.items()})
        addresses = self._with_peer(
            scope, "address", {name: OutputField(node.facts, "tailnet_ip") for name, node in members.items()}
        )
        gpus = self._with_peer(scope, "gpus", {name: node.gpus for name, node in members.items()})
        mpi = as_dict({name: OutputField(node.facts, "mpi") for name, node in members.items()})
        nodes = as_output({"sites": sites, "addresses": addresses, "gpus": gpus, "mpi": mpi}, nodes_of)
        # BUSY is no result: the next number of retries measures again.
        again = self._before.apply(partial(retries, scope.name))
        spans = scope.sites > 1
        # Without the peer, because only the tailnet joins sites.
        proven = as_dict({name: node.fabric for name, node in members.items()})
        # Only the tailnet joins sites. Inside a site, role fabric gives jobs their interface.
        host = next(iter(members.values())).host  # all nodes of a site have the same RDMA setting
        rdma = proven.apply(partial(_rdma_of, host))
        expected_interface = proven.apply(
            lambda fabrics: TAILNET_INTERFACE if spans else shared_interface(scope.nodes, fabrics)
        )
        # Without floors: a new floor judges the same measurement.
        request = {key: value for key, value in settings_json(measurement).items() if key not in ("ranks", "nodes")}
        how = [
            json.dumps(request | measurement_plan.any_nodes(settings.nodes), sort_keys=True),
            settings.ranks_per_node,
            settings.nccl.model_dump_json(),
            settings.rerun,
        ]
        conditions = as_dict(
            {
                "cgroups": link.cgroups,
                "interface": expected_interface,
                **({} if spans else {"rdma": rdma}),
                "mpi": mpi,
                **measured_settings(link.settings.slurm.settings),
            }
        )
        measured: list[pulumi.Input[Any]] = [*how, addresses, gpus, sites, conditions, again]
        inputs_digest = as_output(dict(enumerate(measured)), lambda parts: digest([*parts.values()]))
        kept = as_output(
            {"before": self._before, "digest": inputs_digest},
            lambda resolved: kept_from(resolved["before"], scope.name, resolved["digest"], floors),
        )
        plan = as_output(
            {
                "nodes": nodes,
                "kept": kept,
                "expected": expected_interface,
                "proven": proven,
                "sites": sites,
                "rdma": rdma,
            },
            lambda inputs: json.dumps(
                measurement_plan.plan(
                    scope.name,
                    inputs["nodes"],
                    settings,
                    measurement,
                    tuple(inputs["kept"]["floors"]),
                    interface=TAILNET_INTERFACE if spans else "",
                    expected_interface=inputs["expected"],
                    fabric=_fabrics(inputs["sites"], inputs["proven"]),
                    rdma=inputs["rdma"],
                    preflight="preflight" if preflight else "",
                ),
                sort_keys=True,
            ),
        )
        values = {
            "scope": scope.name,
            "members": nodes.apply(member_lines),
            "settings": digest(how),
            "plan": plan,
            "job_script": nodes.apply(
                lambda nodes: validation_job(
                    scope.name,
                    tuple(sorted(nodes)),
                    measurement_plan.cpu_measurement(measurement, nodes),
                    settings.time_limit_minutes,
                    scope.sites,
                )
            ),
        }
        run_limit, limit = measurement_plan.run_seconds(settings), measurement_plan.measurement_seconds(settings)
        seconds = (settings.queue_limit_seconds, run_limit, limit)
        step = measuring_step(scope.name, link, measurement_plan.script(), values, members, measured, seconds, self)

        def judged(resolved: Mapping[str, Any]) -> dict[str, Any]:
            on_gpus = measurement_plan.gpu_measurement(resolved["nodes"], settings)
            on_cpus = measurement_plan.cpu_measurement(measurement, resolved["nodes"])
            by_mpi = measurement_plan.mpi_apart(resolved["nodes"], settings, on_gpus or on_cpus)
            conditions = Conditions(
                *floors, resolved["expected"], spans, settings.floors_from or "config", resolved["rdma"], by_mpi
            )
            result, by_node = judge_scope(on_gpus or on_cpus, resolved["report"], conditions, read_preflight)
            before = resolved["before"] or {}
            more = {
                "retries": resolved["retries"],
                "measured_with": resolved["kept"],
                "history": extended((before.get(scope.name) or {}).get("history"), result),
            }
            last = before.get(NODE) or {}
            gpus = {name: node.gpus for name, node in resolved["nodes"].items()}
            nodes = {} if spans else not_measured_alone(gpus, settings.nccl.gpus_per_node, result, last)
            nodes |= {
                name: {
                    **node_result,
                    "history": extended((last.get(name) or {}).get("history"), node_result, MOST_OF_NODE),
                }
                for name, node_result in by_node.items()
            }
            return {"scope": scope.name, "result": {**result, **more}, "nodes": nodes}

        return as_output(
            {
                "nodes": nodes,
                "report": step.result,
                "retries": again,
                "kept": kept,
                "before": self._before,
                "expected": expected_interface,
                "rdma": rdma,
            },
            judged,
        )

    def _with_peer(self, scope: Scope, key: str, values: Mapping[str, Value]) -> pulumi.Output[dict[str, Any]]:
        """Return values by node, with the peer's if it takes part."""
        values_by_node = as_dict(values)
        if self._peer is None or not scope.others:
            return values_by_node
        return as_output(
            {"own": values_by_node, "peer": self._peer},
            lambda resolved: {**resolved["own"], resolved["peer"]["name"]: resolved["peer"][key]},
        )


def _by_scope(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return all results by scope; single-node results are under the key `node`, if there are any."""
    by_node = {name: result for scope in measured for name, result in scope["nodes"].items()}
    return {**({NODE: by_node} if by_node else {}), **{scope["scope"]: scope["result"] for scope in measured}}
