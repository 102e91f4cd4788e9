"""Create the groups with the same gid on every machine, and set their members."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.user_groups.groups import GroupsValues, ensure_group, refuse_clashes, set_members


def machine(step: Step, values: GroupsValues) -> None:
    """Make the groups as the config has them. A former group stays, so that no other gets its files, without members.

    Sessions and jobs that run keep the groups that they began with.
    """
    refuse_clashes(values, step.host)
    for group in values.user_groups_lines:
        ensure_group(group)
        set_members(group.name, values.members_of(group.name), values.users_lines)
    for name in values.former():
        set_members(name, [], values.users_lines)
