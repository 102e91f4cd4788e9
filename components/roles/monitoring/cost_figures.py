"""What nodes cost an hour and came to this month, and how long those that cost have been idle. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from components.roles.monitoring.exposition import Metric
from components.roles.tailrack_command.costs import Cost


def cost_figures(costs: Iterable[Cost], head: str, idle_hours: int) -> list[Metric]:
    """Return figures of nodes that have a price: of those that are there, and what all came to that were this month.

    head         without it no other could be used, so nobody is told that it is idle
    idle_hours   what is held against how long the others are
    """
    all_of = [*costs]
    there = [cost for cost in all_of if cost.there]
    idle = [({"node": cost.name}, cost.idle_seconds or 0) for cost in there if cost.name != head]
    return [
        Metric(
            "tailrack_node_price_per_hour",
            "What a node costs an hour by the config, in its currency.",
            [({"node": cost.name, "currency": cost.currency}, cost.price) for cost in there],
        ),
        Metric(
            "tailrack_node_cost_this_month",
            "What a node came to since the first of the month (UTC), in its currency; also of one that has left.",
            [({"node": cost.name, "currency": cost.currency}, cost.month) for cost in all_of],
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
