"""The monthly budget, which `tailrack costs`, `tailrack usage` and the metrics compare with what the machines cost."""

from __future__ import annotations

import json

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """Return the role, also where there is no budget: it then removes one."""
    budget = settings.budget
    text = json.dumps([budget.per_month, settings.currency, budget.tell_percent]) if budget else ""
    return Role("budget", after=("costs",), values={"BUDGET_SETTINGS": text})
