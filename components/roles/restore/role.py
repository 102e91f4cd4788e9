"""Restore: a new head node gets the lost one's state from its backup before it joins the tailnet."""

from __future__ import annotations

from components.roles.backup.role import MOMENT, PACKAGES
from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """Return the role; None if the head node is not restored from a backup."""
    if settings.head.restore_from is None:
        return None
    return Role(
        "restore",
        after=("clock",),
        values={"from": settings.head.restore_from},
        packages={"restore": PACKAGES},
        facts={"restore": {"restored_made": MOMENT, "restored_age": MOMENT}},
    )
