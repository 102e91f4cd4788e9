"""Metrics of the monthly budget. Pure."""

from __future__ import annotations

from components.roles.budget.spending import FULL, Spending
from components.roles.monitoring.exposition import Metric


def budget_figures(seen: Spending | None) -> list[Metric]:
    """Return the spent share and the share at which an alert fires; none without a budget."""
    if seen is None:
        return []
    spent = seen.amount / seen.budget.per_month
    return [
        Metric("tailrack_budget_spent_ratio", "Share of this month's budget (UTC) that is spent.", [({}, spent)]),
        Metric("tailrack_budget_tell_ratio", "Spent share at which an alert fires.", [({}, seen.budget.tell / FULL)]),
    ]
