"""What a machine has of another cluster at first contact. It stays, unless the config lets it be taken over."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(_settings: ClusterSettings) -> Role:
    """The last in the order: the gates of the other roles say what there is, and this one's refuses it."""
    return Role("foreign_cluster", after=("slurm", "nfs_exports", "munge"))
