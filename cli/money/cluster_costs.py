"""The costs of a stack's cluster for the report, from its head node, or from the config if that does not answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.head.answer import ask_head
from cli.money.amounts import Prices
from cli.output.terminal import one_line
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from components.roles.tailrack_command.costs import ESTIMATE, Cost, as_rows, longest_idle, sums

_COMMAND = "/usr/local/bin/tailrack costs --json"


@dataclass(frozen=True)
class ClusterCosts:
    """Sentences on sums, a note on all of it, and idle nodes, the longest idle first."""

    sums: list[str]
    note: str
    idle: list[Cost] = field(default_factory=list)


def cluster_costs(deployment: Deployment, outputs: Mapping[str, Any]) -> ClusterCosts | None:
    """Return the costs from the head node; None if no node of the stack has a price."""
    prices = Prices.from_outputs(outputs)
    if not prices.by_node:
        return None
    try:
        answer = json.loads(ask_head(deployment, deployment.made(), str(outputs["cluster"].get("head", "")), _COMMAND))
        rows = as_rows(answer)
        return ClusterCosts(sums(rows, int(answer["since"])), ESTIMATE, longest_idle(rows))
    except CliError as error:
        reason = one_line(str(error))
    except (ValueError, KeyError, TypeError):
        reason = "the head node's answer cannot be read"
    return ClusterCosts(
        [f"{prices.summary}, by the config of the last up"], f"This month's costs and idle nodes are unknown: {reason}."
    )
