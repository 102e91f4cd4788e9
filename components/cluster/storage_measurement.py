"""The storage measurement: after the other measurements, one job measures the share and scratch on each node with fio.

It runs again if its inputs change, like the measurement of a scope (nccl_validation.py), and uses the same script.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import HeadNode
from components.cluster.training_benchmark import digest, done, member_lines, nodes_of
from components.measurement import storage
from components.measurement.plan import START_SECONDS
from components.measurement.scopes import retries
from components.roles.slurm.files import measured_settings
from components.settings.storage_measurement import StorageMeasurement as Settings
from components.settings.storage_measurement import floors_at
from components.settings.validation import Validation
from components.steps import results
from components.steps.step import Step
from components.steps.values import OutputField, as_dict, as_output
from components.validation.storage_figures import FIGURES, LATENCY
from components.validation.storage_verdict import judge_storage

NAME = "storage"


class StorageMeasurement(pulumi.ComponentResource):
    """The storage measurement of a cluster.

    results   Output[dict]: the result of components.validation.storage_verdict.judge_storage, with `retries`

    members     the nodes that run jobs
    after       results of the other measurements, which run first
    before      `results` of the previous run, or None
    """

    def __init__(
        self,
        link: HeadLink,
        members: Sequence[HeadNode | ComputeNode],
        validation: Validation,
        settings: Settings,
        after: pulumi.Output[Any],
        before: pulumi.Output[Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        targets = storage.targets(link.settings)
        in_state = _floors_in_state(settings, targets, {node.host.site for node in members})
        super().__init__("tailrack:validation:StorageMeasurement", NAME, in_state, opts)
        wanted = {*(settings.nodes or validation.nodes or [node.host.name for node in members])}
        nodes = {node.host.name: node for node in members if node.host.name in wanted}
        sites = {name: node.host.site for name, node in nodes.items()}
        addresses = as_dict({name: OutputField(node.joined, "tailnet_ip") for name, node in nodes.items()})
        gpus = as_dict({name: node.gpus for name, node in nodes.items()})
        member_nodes = as_output({"addresses": addresses, "gpus": gpus}, lambda resolved: nodes_of(sites, resolved))
        conditions = as_dict({"cgroups": link.cgroups, **measured_settings(link.settings.slurm.settings)})
        again = before.apply(lambda last: retries(storage.SCOPE, {storage.SCOPE: last or {}}))
        storage_settings = {
            "size": settings.size,
            "seconds": settings.seconds,
            "version": storage.VERSION,
            "targets": [asdict(target) for target in targets],
        }
        how = [json.dumps(storage_settings, sort_keys=True), 0, "", validation.rerun]
        # The same parts in the same order as the triggers of a scope: a preview reads both (why_measured).
        measured: list[pulumi.Input[Any]] = [*how, addresses, gpus, sites, conditions, again]
        run_limit = storage.run_seconds(len(nodes), targets, settings)
        step = Step(
            f"validate-{NAME}",
            link.machine,
            storage.script(),
            {
                "SCOPE": storage.SCOPE,
                "MEMBERS": as_output(
                    {"nodes": member_nodes, "after": done(after)}, lambda resolved: member_lines(resolved["nodes"])
                ),
                "SETTINGS": member_nodes.apply(lambda nodes: digest([*how, sorted(nodes)])),
                "RUN_AS": link.settings.users[0].name,
                "PLAN": member_nodes.apply(
                    lambda nodes: json.dumps(storage.storage_plan(nodes, targets, settings), sort_keys=True)
                ),
                "JOB_SCRIPT": storage.storage_job(storage.job_minutes(len(nodes), targets, settings)),
                "QUEUE_LIMIT": validation.queue_limit_seconds,
                "RUN_LIMIT": run_limit,
                "MEASUREMENT_LIMIT": run_limit + START_SECONDS,
            },
            measure=measured,
            answer=results.MEASUREMENT,
            label=f"measure {NAME}",
            # No lock: this step waits for minutes and changes nothing that other steps on this machine change.
            lock=None,
            parent=self,
            depends_on=[*([link.ready] if link.ready else []), *(node.ready for node in nodes.values())],
            limit_seconds=validation.queue_limit_seconds + 2 * run_limit + START_SECONDS + 360,
        )
        paths = {
            name: {target.name: target.path for target in targets if target.is_at(site)} for name, site in sites.items()
        }
        floors = {
            name: {target: floors_at(settings.floors, target, sites[name]) for target in paths[name]} for name in sites
        }
        self.results: pulumi.Output[dict[str, Any]] = as_output(
            {"report": step.result, "retries": again},
            lambda resolved: {
                **judge_storage(resolved["report"], paths, floors, settings.size),
                "retries": resolved["retries"],
            },
        )
        self.register_outputs({"results": self.results})


def _floors_in_state(
    settings: Settings, targets: Sequence[storage.Target], sites: Collection[str]
) -> dict[str, dict[str, float] | list[str]]:
    """Return the floors for the state, so that cli/checks finds one that was removed or lowered.

    `limits` has those whose higher values are weaker.
    """
    floors: dict[str, float] = {}
    limits: dict[str, float] = {}
    places = [(target.name, site) for target in targets for site in sorted(sites) if target.is_at(site)]
    for target, site in places:
        for name, value in floors_at(settings.floors, target, site).items():
            (limits if name == LATENCY else floors)[_scope(target, site, name)] = value
    scopes = [_scope(target, site, name) for target, site in places for name in FIGURES]
    return {"floors": floors, "limits": limits, "scopes": scopes}


def _scope(target: str, site: str, figure: str) -> str:
    return f"{target} at {site}: {figure}"
