"""Restore: a head node on a new machine has what the lost one had, from its backup, before it joins the tailnet."""

from __future__ import annotations

from components.roles.backup.role import MOMENT, PACKAGES
from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """None where the head node is not made of a backup."""
    if settings.head.restore_from is None:
        return None
    return Role(
        "restore",
        after=("clock",),
        values={"RESTORE_FROM": settings.head.restore_from},
        packages={"restore": PACKAGES},
        facts={"restore": {"restored_made": MOMENT, "restored_age": MOMENT}},
    )
