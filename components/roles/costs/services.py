"""Record the head node's own periods."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.costs.stays import PriceValues, forget_old_stays, open_stay


def services(step: Step, values: PriceValues) -> None:
    """Start a period of the head node, and forget nodes that left long ago."""
    open_stay(values)
    forget_old_stays()
