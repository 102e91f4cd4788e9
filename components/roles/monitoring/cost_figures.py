"""Metrics of the nodes' costs per hour and this month, and of the idle time of nodes with a price. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from components.roles.monitoring.exposition import Metric
from components.roles.tailrack_command.costs import Cost


def cost_figures(costs: Iterable[Cost], head: str, idle_hours: int) -> list[Metric]:
    """Return the metrics of nodes with a price; for nodes that left this month, only their cost.

    head         left out of the idle times, because no other node can work without it
    idle_hours   idle time after which an alert fires
    """
    rows = [*costs]
    present = [row for row in rows if row.there]
    idle = [({"node": row.name}, row.idle_seconds or 0) for row in present if row.name != head]
    return [
        Metric(
            "tailrack_node_price_per_hour",
            "Price of a node per hour in the config, in its currency.",
            [({"node": row.name, "currency": row.currency}, row.price) for row in present],
        ),
        Metric(
            "tailrack_node_cost_this_month",
            "Cost of a node since the first of the month (UTC), in its currency; also for nodes that have left.",
            [({"node": row.name, "currency": row.currency}, row.month) for row in rows],
        ),
        Metric(
            "tailrack_node_idle_seconds",
            "Time since a node with a price had a job; 0 if it has one. Without the head node.",
            idle,
        ),
        Metric(
            "tailrack_node_idle_limit_seconds",
            "Idle time after which an alert fires.",
            [({}, idle_hours * 3600)] if idle else [],
        ),
    ]
