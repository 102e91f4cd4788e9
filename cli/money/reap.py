"""Decide whether to destroy an idle pool, from its config and its cluster's Slurm."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cli.head.answer import ask_head
from cli.output.live_status import as_root
from cli.output.terminal import one_line
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from cli.run_events import Made
from components.roles.tailrack_command.host import COMMAND
from stacks.config import PoolConfig

_NODE = re.compile(r"[a-z][a-z0-9-]{0,62}")


@dataclass(frozen=True)
class Decision:
    """Whether to destroy a stack now, and the reason, which follows `Keeping stack x: `."""

    destroy: bool
    why: str


def decide(deployment: Deployment) -> Decision:
    """Ask the cluster, which drains the pool's nodes if they are unused.

    Raises CliError if the use is unknown; then nothing is destroyed.
    """
    config = deployment.config()
    if not isinstance(config, PoolConfig):
        return Decision(False, "it is a cluster, and only pools are destroyed when idle")
    if config.idle_limit_minutes is None:
        return Decision(False, "its config has no idle_limit_minutes")
    cluster = deployment.outputs().get("cluster")
    resources = deployment.made()
    if not cluster:
        if resources:
            raise CliError(
                "the last run of this stack did not finish, so it is unknown whether its machines are used: "
                f"run {deployment.make('up')} or {deployment.make('down')}"
            )
        return Decision(False, "it has no resources")
    # Include the nodes of a later run that did not finish.
    names = sorted({str(node["name"]) for node in cluster.get("nodes", ())} | {*_nodes_of(resources)})
    words = ["idle", "--json", "--take-out", "--minutes", str(config.idle_limit_minutes)]
    # Only root may drain nodes.
    command = as_root(COMMAND, *words, *filter(_NODE.fullmatch, names))
    return _decision_from(ask_head(deployment, resources, str(cluster.get("head", "")), command))


def _nodes_of(resources: Iterable[Made]) -> Iterator[str]:
    for resource in resources:
        kind, _, name = resource.urn.rpartition("::")
        if kind.endswith("tailrack:cluster:ComputeNode"):
            yield name


def _decision_from(answer: str) -> Decision:
    """Return the decision in the output of `tailrack idle --json`; CliError for any other output."""
    try:
        report = json.loads(answer)
        if isinstance(report["unused"], bool) and isinstance(report["why"], str):
            return Decision(report["unused"], one_line(report["why"]))
    except (ValueError, KeyError, TypeError):
        pass
    raise CliError(f"the head node did not report whether the pool is in use: {one_line(answer[-200:]) or 'nothing'}")
