"""The clock: a machine's time must match the head node's, because munge's credentials expire."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(_settings: ClusterSettings) -> Role:
    """Return the role. Only machines without a time service get its package (host.py)."""
    return Role("clock", after=("machine",), on_pods=("check",))
