"""A job of a plain user that shows, on every node, that it runs inside a container."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """After Slurm in the order, which Enroot and Pyxis come before: jobs find them wherever they are sent."""
    return Role("container_smoke", after=("slurm",)) if settings.containers else None
