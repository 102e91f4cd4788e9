"""The budget: messages when a share of it is spent, and new jobs wait when all of it is.

job_submit.lua (role slurm) holds new jobs. `tailrack costs`, `tailrack usage` and `tailrack why` show it.
"""

from __future__ import annotations

import json

from components.roles.budget.paths import HOLDING, TOLD, UNITS
from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher
from components.roles.role import Role, template


def role(settings: ClusterSettings) -> Role:
    """Return the role, also where there is no budget: its script then releases jobs and removes it."""
    budget = settings.budget
    return Role(
        "budget",
        after=("accounting", "costs", "job_reports", "slurm"),
        values={"BUDGET_SETTINGS": as_json(settings), "BUDGET_NOTIFY": budget.notify if budget else ()},
        # A restored head node repeats no message, and releases the jobs that slurmctld's own state has as held.
        state=(TOLD, HOLDING) if budget else (),
        texts={
            "BUDGET_PROGRAM": launcher("budget") if budget else "",
            "BUDGET_UNIT": template("budget", UNITS[0]) if budget else "",
            "BUDGET_TIMER": template("budget", UNITS[1]) if budget else "",
        },
    )


def as_json(settings: ClusterSettings) -> str:
    """Return the budget as spending.py reads it; empty without one."""
    budget = settings.budget
    if budget is None:
        return ""
    amount = (budget.per_month, settings.currency)
    return json.dumps([*amount, budget.tell_percent, budget.hold, list(budget.exempt_qos), settings.users[0].uid])
