"""The monthly budget, which `tailrack costs`, `tailrack usage` and the metrics compare with what the machines cost."""

from __future__ import annotations

import json

from components.roles.budget.spending import BUDGET
from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role


def role(settings: ClusterSettings) -> Role | None:
    """Return the role; None without a budget."""
    if not (budget := settings.budget):
        return None
    text = json.dumps([budget.per_month, settings.currency, budget.tell_percent])
    return Role("budget", after=("costs",), files={"services": (File(BUDGET, text),)})
