"""What a stack's cluster costs as its head node tells it, for the report; what of it is known where that is silent."""

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

_ASK = "/usr/local/bin/tailrack costs --json"


@dataclass(frozen=True)
class ClusterCosts:
    """Sentences on sums, nodes that are idle, the longest first, and what there is to say of all this."""

    sums: list[str]
    note: str
    idle: list[Cost] = field(default_factory=list)


def cluster_costs(deployment: Deployment, outputs: Mapping[str, Any]) -> ClusterCosts | None:
    """Ask the head node; None where no node of the stack has a price."""
    prices = Prices.made(outputs)
    if not prices.of:
        return None
    try:
        said = json.loads(ask_head(deployment, deployment.made(), str(outputs["cluster"].get("head", "")), _ASK))
        rows = as_rows(said)
        return ClusterCosts(sums(rows, int(said["since"])), ESTIMATE, longest_idle(rows))
    except CliError as error:
        why = one_line(str(error))
    except (ValueError, KeyError, TypeError):
        why = "the head node's answer cannot be read"
    return ClusterCosts(
        [f"{prices.words}, by the config of the last up"], f"This month and who is idle: not known, {why}."
    )
