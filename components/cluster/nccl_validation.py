"""The measurement at the end of each `up`: bus bandwidth of all_reduce, inside each site and across sites.

It runs through Slurm like any job. A scope is a set of nodes that are measured together. A scope is measured again if
its nodes, their addresses, the way in which Slurm starts processes, or the measurement's settings change. An unchanged
cluster is measured again only if other jobs kept the last measurement from its nodes.
"""

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
from components.measurement_jobs.scopes import Scope, kept_from, measurement_of, retries, scopes
from components.roles.network.fabric.facts import TAILNET_INTERFACE, shared_interface
from components.roles.slurm.slurm.slurm_conf import measured_settings
from components.settings.network_names import ON_THE_TAILNET
from components.settings.types import CROSS_SITE, NODE
from components.settings.validation import Validation
from components.steps.values import OutputField, Value, as_dict, as_output
from components.validation.preflight.gpus import read_preflight
from components.validation.results import (
    MOST_OF_NODE,
    Conditions,
    extended,
    judge_scope,
    not_measured_alone,
    settings_json,
)
from components.validation.transport import ANY_RDMA, ONLY_SOCKETS, ROCE_UNPROVEN


def _network(scope: Scope, members: Mapping[str, Host], proven: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the nodes' network is expected to carry, for the plan and the verdict.

    interface   the interface that sockets should use
    rdma        the RDMA that jobs may use (components/validation/transport.py)
    fabric      by site, the interface that all its nodes share, for the preflight; empty if that is the tailnet's
    """
    # All nodes of a site have the same RDMA setting.
    host = next(iter(members.values()))
    carried = any(fabric and fabric["rdma"] for fabric in proven.values())
    rdma = ROCE_UNPROVEN if host.rdma == ANY_RDMA and not carried else host.rdma
    shared = {}
    for site in sorted({member.site for member in members.values()}):
        in_site = {name: proven[name] for name, member in members.items() if member.site == site}
        name = shared_interface(in_site.keys(), in_site)
        shared[site] = "" if name == TAILNET_INTERFACE or "," in name or len(in_site) < 2 else name
    return {
        # Only the tailnet joins sites. Inside a site, role fabric gives jobs their interface.
        "interface": TAILNET_INTERFACE if scope.sites > 1 else shared_interface(scope.nodes, proven),
        "rdma": ONLY_SOCKETS if host.fabric == ON_THE_TAILNET else rdma,
        "fabric": shared,
    }


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
        hosts = {name: node.host for name, node in members.items()}
        # Without the peer, because only the tailnet joins sites.
        network = as_output({name: node.fabric for name, node in members.items()}, partial(_network, scope, hosts))
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
                "interface": OutputField(network, "interface"),
                **({} if spans else {"rdma": OutputField(network, "rdma")}),
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
        facts = as_dict({"nodes": nodes, "kept": kept, "network": network, "retries": again, "before": self._before})
        plan = facts.apply(
            lambda known: json.dumps(
                measurement_plan.plan(
                    scope.name,
                    known["nodes"],
                    settings,
                    measurement,
                    tuple(known["kept"]["floors"]),
                    known["network"],
                    preflight=preflight,
                ),
                sort_keys=True,
            )
        )
        values = {
            "scope": scope.name,
            "members": nodes.apply(member_lines),
            "settings": digest(how),
            "plan": plan,
        }
        run_limit, limit = measurement_plan.run_seconds(settings), measurement_plan.measurement_seconds(settings)
        seconds = (settings.queue_limit_seconds, run_limit, limit)
        step = measuring_step(scope.name, link, measurement_plan.script(), values, members, measured, seconds, self)

        def judged(resolved: Mapping[str, Any]) -> dict[str, Any]:
            known, report = resolved["facts"], resolved["report"]
            nodes, network, before = known["nodes"], known["network"], known["before"] or {}
            on_cpus = measurement_plan.cpu_measurement(measurement, nodes)
            asked = measurement_plan.gpu_measurement(nodes, settings) or on_cpus
            by_mpi = measurement_plan.mpi_apart(nodes, settings, asked)
            source = settings.floors_from or "config"
            conditions = Conditions(*floors, network["interface"], spans, source, network["rdma"], by_mpi)
            result, by_node = judge_scope(asked, report, conditions, read_preflight)
            more = {
                "retries": known["retries"],
                "measured_with": known["kept"],
                "history": extended((before.get(scope.name) or {}).get("history"), result),
            }
            last = before.get(NODE) or {}
            gpus = {name: node.gpus for name, node in nodes.items()}
            results = {} if spans else not_measured_alone(gpus, settings.nccl.gpus_per_node, result, last)
            for name, of_node in by_node.items():
                history = extended((last.get(name) or {}).get("history"), of_node, MOST_OF_NODE)
                results[name] = {**of_node, "history": history}
            return {"scope": scope.name, "result": {**result, **more}, "nodes": results}

        return as_output({"facts": facts, "report": step.result}, judged)

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
