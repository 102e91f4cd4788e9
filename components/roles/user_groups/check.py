"""Refuse a machine whose groups conflict with the cluster's."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.user_groups.groups import GroupsValues, refuse_clashes


def check(step: Step, values: GroupsValues) -> None:
    """Check the groups, and change nothing."""
    refuse_clashes(values, step.host)
