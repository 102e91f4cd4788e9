"""A job of a user on every node that proves that containers work."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """Return the role if the config enables containers. It comes after Slurm, because the proof is a job."""
    return Role("container_smoke", after=("slurm",)) if settings.containers else None
