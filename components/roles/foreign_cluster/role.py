"""Refuse a machine that serves another cluster, unless the config allows taking it over."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(_settings: ClusterSettings) -> Role:
    """Return the role. It comes last: the checks of other roles find files, its check refuses the machine."""
    return Role("foreign_cluster", after=("slurm", "nfs_exports", "munge"), on_pods=("check",))
