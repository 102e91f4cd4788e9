"""Remove the budget from the head node."""

from __future__ import annotations

from components.node import files, systemd
from components.roles.budget.paths import BUDGET, NOTIFY, PROGRAM, SPENT, TOLD, UNITS


def remove_budget() -> None:
    """Remove the program and its record of messages."""
    systemd.retire(*reversed(UNITS))
    for path in (SPENT, BUDGET, NOTIFY, TOLD, PROGRAM):
        files.remove(path)
