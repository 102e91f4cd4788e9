"""munge: every message of Slurm is signed with one key of the cluster (components/cluster/munge_key.py makes it)."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """The key is a secret value of the join step, not of the role; the package comes after the key."""
    return Role(
        "munge",
        after=("clock",),
        values={"cluster": settings.cluster.name},
        state=("/etc/munge/munge.key", "/var/lib/tailrack/munge.digests"),
    )
