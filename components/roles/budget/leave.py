"""Remove the budget."""

from __future__ import annotations

from components.node import files
from components.node.step.step import Step
from components.roles.budget.paths import BUDGET


def leave(step: Step) -> None:
    """Remove it."""
    files.remove(BUDGET)
