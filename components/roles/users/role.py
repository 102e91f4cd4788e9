"""People's accounts, with the same uid and gid on every node, and their homes on the share."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """`lines` has `name uid gid`, as the scripts read them."""
    return Role("users", values={"lines": [f"{user.name} {user.uid} {user.gid}" for user in settings.users]})
