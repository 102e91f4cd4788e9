"""The clock: a machine keeps the head node's time before it has the cluster's key, which munge ties to time."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(_settings: ClusterSettings) -> Role:
    """Its package comes only to machines that have no service of the kind (join.sh)."""
    return Role("clock", after=("machine",))
