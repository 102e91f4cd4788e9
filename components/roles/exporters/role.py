"""Exporters of a compute node's metrics, which the head node's Prometheus scrapes."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.monitoring.host import figures_task
from components.roles.monitoring.role import EXPORTER_PACKAGES
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role | None:
    """Return the role, or None without monitoring: its nodes then have no step for it."""
    if settings.monitoring is None:
        return None
    return Role(
        "exporters",
        after=("monitoring",),
        packages={"node_services": EXPORTER_PACKAGES},
        tasks={"node": (figures_task("tailnet", "gpus", "certificate"),)},
    )
