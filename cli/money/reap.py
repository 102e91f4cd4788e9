"""Whether a pool is taken away because nobody uses it: what its config allows, and what its cluster's Slurm says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cli.head.answer import ask_head
from cli.output.terminal import one_line
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from engine.events import Made
from stacks.config import PoolConfig

_NODE = re.compile(r"[a-z][a-z0-9-]{0,62}")
# As root, who alone may take nodes out of work.
_ASK = """set -e
program=/usr/local/bin/tailrack
if [ "$(id -u)" = 0 ]; then $program {words}; else sudo -n $program {words}; fi"""


@dataclass(frozen=True)
class Decision:
    """Whether a stack is to be destroyed now, and why or why not, in words for after `Stack x is kept: `."""

    destroy: bool
    why: str


def decide(deployment: Deployment) -> Decision:
    """Ask the cluster, which takes the pool's nodes out of work where nobody uses them.

    Raises CliError where that cannot be found out, which is no reason to destroy anything.
    """
    config = deployment.config()
    if not isinstance(config, PoolConfig):
        return Decision(False, "it is a cluster, and only a pool is ever taken away for being idle")
    if config.idle_limit_minutes is None:
        return Decision(False, "its config has no idle_limit_minutes")
    cluster = deployment.outputs().get("cluster")
    made = deployment.made()
    if not cluster:
        if made:
            raise CliError(
                "the last run of this stack did not come to its end, and nobody can say who uses what it has made: "
                f"run {deployment.make('up')}, or {deployment.make('down')}"
            )
        return Decision(False, "nothing of it is there")
    # Also those of a run since that did not come to its end.
    names = sorted({str(node["name"]) for node in cluster.get("nodes", ())} | {*_nodes_of(made)})
    words = [
        "idle",
        "--json",
        "--take-out",
        "--minutes",
        str(config.idle_limit_minutes),
        *filter(_NODE.fullmatch, names),
    ]
    said = ask_head(deployment, made, str(cluster.get("head", "")), _ASK.replace("{words}", shlex.join(words)))
    return _read(said)


def _nodes_of(made: Iterable[Made]) -> Iterator[str]:
    for each in made:
        kind, _, name = each.urn.rpartition("::")
        if kind.endswith("tailrack:cluster:ComputeNode"):
            yield name


def _read(said: str) -> Decision:
    """What `tailrack idle --json` has said; anything else is no leave to destroy something."""
    try:
        told = json.loads(said)
        if isinstance(told["unused"], bool) and isinstance(told["why"], str):
            return Decision(told["unused"], one_line(told["why"]))
    except (ValueError, KeyError, TypeError):
        pass
    raise CliError(f"the head node does not say whether anybody uses it: {one_line(said[-200:]) or 'nothing'}")
