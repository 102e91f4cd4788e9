"""One job that measures all chosen nodes of a cluster: the training benchmark and the storage measurement.

It runs again if its inputs change, like the measurement of a scope (nccl_validation.py), and uses the same script.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import HeadNode
from components.measurement import storage, training
from components.measurement.plan import START_SECONDS, Node, any_nodes
from components.measurement.scopes import retries
from components.roles.slurm.files import measured_settings
from components.settings.validation import StorageMeasurement as Settings
from components.settings.validation import Training, Validation, floors_at
from components.steps import results
from components.steps.composition import Script
from components.steps.step import Step
from components.steps.values import OutputField, OutputParts, as_dict, as_output, output_from, resolve
from components.validation.storage_figures import FIGURES, LATENCY
from components.validation.storage_verdict import judge_storage
from components.validation.training_verdict import judge_training

Member = HeadNode | ComputeNode
TRAINING = "training"
_NO_FIGURES = ("nodes", "floor_images_per_second", "time_limit_minutes")  # settings that change no result
STORAGE = "storage"


def chosen_nodes(members: Sequence[Member], listed: Sequence[str], validation: Validation) -> dict[str, Member]:
    """Return the nodes to measure by name. `listed`: those of the measurement's own settings."""
    wanted = {*(listed or validation.nodes or [node.host.name for node in members])}
    return {node.host.name: node for node in members if node.host.name in wanted}


def measuring_step(
    link: HeadLink,
    nodes: Mapping[str, Member],
    validation: Validation,
    *,
    name: str,
    scope: str,
    script: Script,
    settings: Mapping[str, Any],
    any_of: Mapping[str, int],
    plan: Callable[[Mapping[str, Node]], Any],
    job: str,
    run_limit: int,
    after: pulumi.Output[Any],
    before: pulumi.Output[Any],
    parent: pulumi.Resource,
) -> pulumi.Output[dict[str, Any]]:
    """Make the step of a measurement; return its `report` and its `retries`.

    settings    those that change the result
    any_of      the part of the plan for nodes without names
    plan        returns the job's plan for the nodes by name
    job         the job's script
    run_limit   seconds
    after       results of the measurements that run first
    before      results of the previous run, or None
    """
    sites = {name: node.host.site for name, node in nodes.items()}
    addresses = as_dict({name: OutputField(node.joined, "tailnet_ip") for name, node in nodes.items()})
    gpus = as_dict({name: node.gpus for name, node in nodes.items()})
    member_nodes = as_output({"sites": sites, "addresses": addresses, "gpus": gpus}, nodes_of)
    conditions = as_dict({"cgroups": link.cgroups, **measured_settings(link.settings.slurm.settings)})
    again = before.apply(lambda last: retries(scope, {scope: last or {}}))
    how = [json.dumps({**settings, **any_of}, sort_keys=True), 0, "", validation.rerun]
    # The same parts in the same order as the triggers of a scope: a preview reads both (why_measured).
    measured: list[pulumi.Input[Any]] = [*how, addresses, gpus, sites, conditions, again]
    step = Step(
        f"validate-{name}",
        link.machine,
        script,
        {
            "SCOPE": scope,
            "MEMBERS": as_output(
                {"nodes": member_nodes, "after": done(after)}, lambda resolved: member_lines(resolved["nodes"])
            ),
            # With all nodes, so that a new node alone with a peer is never measured: that gives another result.
            "SETTINGS": member_nodes.apply(lambda nodes: digest([*how, sorted(nodes)])),
            "RUN_AS": link.settings.users[0].name,
            "PLAN": member_nodes.apply(lambda nodes: json.dumps({**plan(nodes), **any_of}, sort_keys=True)),
            "JOB_SCRIPT": job,
            "QUEUE_LIMIT": validation.queue_limit_seconds,
            "RUN_LIMIT": run_limit,
            "MEASUREMENT_LIMIT": run_limit + START_SECONDS,
        },
        measure=measured,
        answer=results.MEASUREMENT,
        label=f"measure {name}",
        # No lock: this step waits for minutes and changes nothing that other steps on this machine change.
        lock=None,
        parent=parent,
        depends_on=[*([link.ready] if link.ready else []), *(node.ready for node in nodes.values())],
        limit_seconds=validation.queue_limit_seconds + 2 * run_limit + START_SECONDS + 360,
    )
    return as_output({"report": step.result, "retries": again}, dict)


def nodes_of(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Node]:
    """Return the nodes of a measurement from their `sites`, `addresses`, `gpus`, and `mpi` where it is known."""
    sites, addresses, gpus, mpi = facts["sites"], facts["addresses"], facts["gpus"], facts.get("mpi", {})
    return {name: Node(sites[name], addresses[name], gpus[name], mpi.get(name) or "") for name in sorted(sites)}


def member_lines(nodes: Mapping[str, Node]) -> list[str]:
    """Return the line of each node for the measuring script."""
    return [f"{name} {node.site} {node.address}" for name, node in sorted(nodes.items())]


def digest(parts: Sequence[Any]) -> str:
    """Return a digest of a measurement's settings."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def done(after: pulumi.Output[Any]) -> pulumi.Output[str]:
    """Return an empty text once an output has a value or has failed, without a dependency on its resources.

    With a dependency, a scope that is removed while another one fails would remain a dependency of this step in the
    state, and the CLI (3.260) cannot read such a state.
    """

    async def wait() -> OutputParts:
        with contextlib.suppress(Exception):  # the failed step reports it
            await resolve({"after": after})
        return set(), "", True, False

    return output_from(wait())


class TrainingBenchmark(pulumi.ComponentResource):
    """The training benchmark: after the bandwidth measurement, one job on the nodes trains a small vision model.

    results   Output[dict]: the result of components.validation.training_verdict.judge_training, with `retries`

    members     the nodes that run jobs
    after       results of the bandwidth measurement, which runs first
    before      `results` of the previous run, or None
    """

    def __init__(
        self,
        link: HeadLink,
        members: Sequence[Member],
        validation: Validation,
        settings: Training,
        after: pulumi.Output[Any],
        before: pulumi.Output[Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        # The state keeps the floor, so that cli/checks finds a floor that was removed or lowered.
        floor = settings.floor_images_per_second
        inputs = {"floors": {} if floor is None else {TRAINING: floor}, "scopes": [TRAINING]}
        super().__init__("tailrack:validation:TrainingBenchmark", TRAINING, inputs, opts)
        nodes = chosen_nodes(members, settings.nodes, validation)
        training_settings = {name: value for name, value in settings.model_dump().items() if name not in _NO_FIGURES}
        reported = measuring_step(
            link,
            nodes,
            validation,
            name=TRAINING,
            scope=training.SCOPE,
            script=training.script(),
            settings={**training_settings, "version": training.VERSION},
            any_of=any_nodes(settings.nodes or validation.nodes),
            plan=lambda nodes: training.training_plan(nodes, settings),
            job=training.training_job(settings),
            run_limit=training.run_seconds(settings),
            after=after,
            before=before,
            parent=self,
        )
        self.results: pulumi.Output[dict[str, Any]] = reported.apply(
            lambda resolved: {
                **judge_training(resolved["report"], floor, validation.floors_from or "config"),
                "retries": resolved["retries"],
            },
        )
        self.register_outputs({"results": self.results})


class StorageMeasurement(pulumi.ComponentResource):
    """The storage measurement: after the others, one job measures the share and scratch on each node with fio.

    results   Output[dict]: the result of components.validation.storage_verdict.judge_storage, with `retries`

    members     the nodes that run jobs
    after       results of the other measurements, which run first
    before      `results` of the previous run, or None
    """

    def __init__(
        self,
        link: HeadLink,
        members: Sequence[Member],
        validation: Validation,
        settings: Settings,
        after: pulumi.Output[Any],
        before: pulumi.Output[Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        targets = storage.targets(link.settings)
        in_state = _floors_in_state(settings, targets, {node.host.site for node in members})
        super().__init__("tailrack:validation:StorageMeasurement", STORAGE, in_state, opts)
        nodes = chosen_nodes(members, settings.nodes, validation)
        sites = {name: node.host.site for name, node in nodes.items()}
        reported = measuring_step(
            link,
            nodes,
            validation,
            name=STORAGE,
            scope=storage.SCOPE,
            script=storage.script(),
            settings={
                "size": settings.size,
                "seconds": settings.seconds,
                "version": storage.VERSION,
                "targets": [asdict(target) for target in targets],
            },
            any_of=any_nodes(settings.nodes or validation.nodes),
            plan=lambda nodes: storage.storage_plan(nodes, targets, settings),
            job=storage.storage_job(storage.job_minutes(len(nodes), targets, settings)),
            run_limit=storage.run_seconds(len(nodes), targets, settings),
            after=after,
            before=before,
            parent=self,
        )
        paths = {
            name: {target.name: target.path for target in targets if target.is_at(site)} for name, site in sites.items()
        }
        floors = {
            name: {target: floors_at(settings.floors, target, sites[name]) for target in paths[name]} for name in sites
        }
        self.results: pulumi.Output[dict[str, Any]] = reported.apply(
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
