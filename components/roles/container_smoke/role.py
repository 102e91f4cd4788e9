"""A job of a user on every node that proves that containers work."""

from __future__ import annotations

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """Return the role if the config enables containers. It comes after Slurm, because the proof is a job."""
    if not settings.containers:
        return None
    # Copy staged images to this machine's disk, and check that containers work.
    idle = ("Nice=10", "IOSchedulingClass=idle")
    keep = Task("containers", ("/usr/local/sbin/tailrack-containers", "keep"), limit=7200, settings=idle)
    return Role("container_smoke", after=("slurm",), tasks={"compute": (keep,)})
