"""Record when a node joins and leaves."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.costs.stays import NodeValues, PriceValues, close_stay, open_stay


def register(step: Step, values: PriceValues) -> None:
    """Start a period."""
    open_stay(values)


def forget(step: Step, values: NodeValues) -> None:
    """End it."""
    close_stay(values.node_name)
