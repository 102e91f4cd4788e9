"""Refuse a machine whose accounts conflict with the cluster's users."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.users.accounts import UsersValues
from components.roles.users.clash import refuse_clashes


def check(step: Step, values: UsersValues) -> None:
    """Check the accounts, and change nothing."""
    refuse_clashes(values, step.host)
