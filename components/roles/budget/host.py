"""The budget on the head node."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.state import STATE_DIR
from components.node.step.step import Step
from components.roles.budget.spending import BUDGET

# A budget that held jobs and sent messages left these.
_FORMER = (
    *("/usr/local/lib/tailrack/budget", "/etc/tailrack/budget-notify"),
    *(f"{STATE_DIR}/budget-{name}" for name in ("spent", "holding", "told")),
)


@dataclass(frozen=True)
class BudgetValues:
    """The budget as JSON (spending.py); empty without one."""

    budget_settings: str


def services(step: Step, values: BudgetValues) -> None:
    """Write it, or remove it."""
    for path in _FORMER:
        files.remove(path)
    if values.budget_settings:
        files.write(BUDGET, values.budget_settings)
    else:
        files.remove(BUDGET)


def leave(step: Step) -> None:
    """Remove it."""
    files.remove(BUDGET)
