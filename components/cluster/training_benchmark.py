"""The training benchmark: after the bandwidth measurement, one job on the nodes trains a small vision model.

It runs again if its inputs change, like the measurement of a scope (nccl_validation.py), and uses the same script.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from components.cluster.compute_node import ComputeNode
from components.cluster.head_link import HeadLink
from components.cluster.head_node import HeadNode
from components.measurement import training
from components.measurement.plan import START_SECONDS, Node
from components.measurement.scopes import retries
from components.roles.slurm.files import measured_settings
from components.settings.training import Training
from components.settings.validation import Validation
from components.steps import results
from components.steps.step import Step
from components.steps.values import OutputField, OutputParts, as_dict, as_output, output_from, resolve
from components.validation.training_verdict import judge_training

NAME = "training"
_NO_FIGURES = ("nodes", "floor_images_per_second", "time_limit_minutes")  # settings that change no result


class TrainingBenchmark(pulumi.ComponentResource):
    """The training benchmark of a cluster.

    results   Output[dict]: the result of components.validation.training_verdict.judge_training, with `retries`

    members     the nodes that run jobs
    after       results of the bandwidth measurement, which runs first
    before      `results` of the previous run, or None
    """

    def __init__(
        self,
        link: HeadLink,
        members: Sequence[HeadNode | ComputeNode],
        validation: Validation,
        settings: Training,
        after: pulumi.Output[Any],
        before: pulumi.Output[Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        # The state keeps the floor, so that cli/checks finds a floor that was removed or lowered.
        floor = settings.floor_images_per_second
        inputs = {"floors": {} if floor is None else {NAME: floor}, "scopes": [NAME]}
        super().__init__("tailrack:validation:TrainingBenchmark", NAME, inputs, opts)
        wanted = {*(settings.nodes or validation.nodes or [node.host.name for node in members])}
        nodes = {node.host.name: node for node in members if node.host.name in wanted}
        sites = {name: node.host.site for name, node in nodes.items()}
        addresses = as_dict({name: OutputField(node.joined, "tailnet_ip") for name, node in nodes.items()})
        gpus = as_dict({name: node.gpus for name, node in nodes.items()})
        member_nodes = as_output({"addresses": addresses, "gpus": gpus}, lambda resolved: nodes_of(sites, resolved))
        conditions = as_dict({"cgroups": link.cgroups, **measured_settings(link.settings.slurm.settings)})
        again = before.apply(lambda last: retries(training.SCOPE, {training.SCOPE: last or {}}))
        training_settings = {name: value for name, value in settings.model_dump().items() if name not in _NO_FIGURES}
        how = [json.dumps({**training_settings, "version": training.VERSION}, sort_keys=True), 0, "", validation.rerun]
        # The same parts in the same order as the triggers of a scope: a preview reads both (why_measured).
        measured: list[pulumi.Input[Any]] = [*how, addresses, gpus, sites, conditions, again]
        run_limit = training.run_seconds(settings)
        step = Step(
            f"validate-{NAME}",
            link.machine,
            training.script(),
            {
                "SCOPE": training.SCOPE,
                "MEMBERS": as_output(
                    {"nodes": member_nodes, "after": done(after)}, lambda resolved: member_lines(resolved["nodes"])
                ),
                # With all nodes, so that a new node alone with a peer is never measured: that gives another result.
                "SETTINGS": member_nodes.apply(lambda nodes: digest([*how, sorted(nodes)])),
                "RUN_AS": link.settings.users[0].name,
                "PLAN": member_nodes.apply(
                    lambda nodes: json.dumps(training.training_plan(nodes, settings), sort_keys=True)
                ),
                "JOB_SCRIPT": training.training_job(settings),
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
        self.results: pulumi.Output[dict[str, Any]] = as_output(
            {"report": step.result, "retries": again},
            lambda resolved: {
                **judge_training(resolved["report"], floor, validation.floors_from or "config"),
                "retries": resolved["retries"],
            },
        )
        self.register_outputs({"results": self.results})


def nodes_of(sites: Mapping[str, str], facts: Mapping[str, Mapping[str, str]]) -> dict[str, Node]:
    """Return the nodes of a measurement from their sites, and their addresses and GPUs."""
    return {name: Node(sites[name], facts["addresses"][name], facts["gpus"][name]) for name in sorted(sites)}


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
