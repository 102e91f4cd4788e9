"""Profilers for users on compute nodes: GPU counters (ncu, nsys) and perf (tailrack:profiling)."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """Return the role, also where it is off: nodes then take the permission back."""
    return Role("profiling", after=("gpu",), values={"enabled": settings.profiling})
