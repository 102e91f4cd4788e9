"""Remove the budget."""

from __future__ import annotations

from components.node import files
from components.node.step.step import Step
from components.roles.budget.paths import HOLDING
from components.roles.budget.remove import remove_budget


def leave(step: Step) -> None:
    """Remove it. slurmctld and its jobs go too."""
    remove_budget()
    files.remove(HOLDING)
