"""Figures of a compute node, for the Prometheus of the head node to ask for."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.monitoring.role import EXPORTER_PACKAGES
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """A role of its own, so that nodes of a cluster without monitoring have no step for it."""
    if settings.monitoring is None:
        return None
    return Role("exporters", after=("monitoring",), packages={"node_services": EXPORTER_PACKAGES})
