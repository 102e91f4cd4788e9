"""People's accounts, with the same uid and gid on every node, and their homes on the share."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """Return the role; each row of `USERS_LINES` is a user: name, uid, gid. Without `homes`, they are on the share."""
    lines = [(user.name, user.uid, user.gid) for user in settings.users]
    values = {"lines": lines, "homes": settings.storage.homes.path if settings.storage.homes else ""}
    return Role("users", after=("machine",), values=values, on_pods=("check", "machine", "leave"))
