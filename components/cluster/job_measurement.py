"""A measurement by one job over all chosen nodes: the training benchmark or the storage measurement.

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
from components.measurement_jobs.job_plans import JobPlan
from components.measurement_jobs.plan import START_SECONDS, Node, script
from components.measurement_jobs.scopes import retries
from components.measurement_jobs.validate import MARGIN_SECONDS
from components.roles.slurm.slurm.slurm_conf import measured_settings
from components.steps import results
from components.steps.composition import Script
from components.steps.step import Step
from components.steps.values import OutputField, OutputParts, Value, as_dict, as_output, output_from, resolve


class JobMeasurement(pulumi.ComponentResource):
    """The step of a measurement.

    results   Output[dict]: the result of the plan's `judge`, with `retries`

    members     the nodes that run jobs
    after       results of the measurements that run first
    before      `results` of the previous run, or None
    """

    def __init__(
        self,
        name: str,
        job: JobPlan,
        link: HeadLink,
        members: Sequence[HeadNode | ComputeNode],
        after: pulumi.Output[Any],
        before: pulumi.Output[Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(f"tailrack:validation:{job.kind}", name, job.in_state, opts)
        validation = link.settings.validation
        nodes = {node.host.name: node for node in members if node.host.name in job.nodes}
        sites = {name: node.host.site for name, node in nodes.items()}
        addresses = as_dict({name: OutputField(node.facts, "tailnet_ip") for name, node in nodes.items()})
        gpus = as_dict({name: node.gpus for name, node in nodes.items()})
        member_nodes = as_output({"sites": sites, "addresses": addresses, "gpus": gpus}, nodes_of)
        conditions = as_dict({"cgroups": link.cgroups, **measured_settings(link.settings.slurm.settings)})
        again = before.apply(lambda last: retries(job.scope, {job.scope: last or {}}))
        how = [json.dumps({**job.settings, **job.any_nodes}, sort_keys=True), 0, "", validation.rerun]
        # The same parts in the same order as the triggers of a scope: a preview reads both (why_measured).
        measured: list[pulumi.Input[Any]] = [*how, addresses, gpus, sites, conditions, again]
        values = {
            "scope": job.scope,
            "members": as_output(
                {"nodes": member_nodes, "after": done(after)}, lambda resolved: member_lines(resolved["nodes"])
            ),
            # With all nodes, so that a new node alone with a peer is never measured: that gives another result.
            "settings": member_nodes.apply(lambda nodes: digest([*how, sorted(nodes)])),
            "plan": member_nodes.apply(lambda nodes: json.dumps(job.plan(nodes), sort_keys=True)),
        }
        seconds = (validation.queue_limit_seconds, job.run_seconds, job.run_seconds + START_SECONDS)
        step = measuring_step(name, link, script(job.command), values, nodes, measured, seconds, self)
        self.results: pulumi.Output[dict[str, Any]] = as_output(
            {"report": step.result, "retries": again},
            lambda resolved: {**job.judge(resolved["report"]), "retries": resolved["retries"]},
        )
        self.register_outputs({"results": self.results})


def measuring_step(
    name: str,
    link: HeadLink,
    script: Script,
    values: Mapping[str, Value],
    nodes: Mapping[str, HeadNode | ComputeNode],
    measured: Sequence[pulumi.Input[Any]],
    seconds: tuple[int, int, int],
    parent: pulumi.Resource,
) -> Step:
    """Return the step of a measurement.

    nodes     those that take part, so that a site is measured even if a node elsewhere is down
    measured  the step measures again when one of these changes
    seconds   limits: the wait for nodes, the run of a job, the measurement
    """
    limits = dict(zip(("queue_limit", "run_limit", "measurement_limit"), seconds, strict=True))
    return Step(
        f"validate-{name}",
        link.machine,
        script,
        {**values, **limits, "run_as": link.settings.users[0].name},
        measure=measured,
        # Untrusted output of a user's process; it must never abort the program.
        answer=results.MEASUREMENT,
        label=f"measure {name}",
        # No lock: this step waits for minutes and changes nothing that other steps on this machine change.
        lock=None,
        parent=parent,
        # Measurements use a lock instead of dependencies (validate.py): if one failed while another was removed, the
        # CLI (3.260) would write a state that it cannot read.
        depends_on=[*([link.ready] if link.ready else []), *(node.ready for node in nodes.values())],
        # First it may wait for the step of a run that was killed.
        limit_seconds=2 * (sum(seconds) + MARGIN_SECONDS),
    )


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
