"""What nodes cost an hour, and how long those that cost have been idle. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from components.roles.monitoring.exposition import Metric
from components.roles.tools.costs import Cost


def cost_figures(costs: Iterable[Cost], head: str, idle_hours: int) -> list[Metric]:
    """Return figures of nodes that are there and have a price.

    head         without it no other could be used, so nobody is told that it is idle
    idle_hours   what is held against how long the others are
    """
    there = [cost for cost in costs if cost.there]
    idle = [({"node": cost.name}, cost.idle_seconds or 0) for cost in there if cost.name != head]
    return [
        Metric(
            "tailrack_node_price_per_hour",
            "What a node costs an hour by the config, in its currency.",
            [({"node": cost.name, "currency": cost.currency}, cost.price) for cost in there],
        ),
        Metric(
            "tailrack_node_idle_seconds",
            "For how long a node with a price has had no job; 0 where it has one. Without the head node.",
            idle,
        ),
        Metric(
            "tailrack_node_idle_limit_seconds",
            "After how long that is an alert.",
            [({}, idle_hours * 3600)] if idle else [],
        ),
    ]
