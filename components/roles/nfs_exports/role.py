"""The share: NFS version 4 from the head node, one export file a member, mounted by every node."""

from __future__ import annotations

from components.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """Which server it is, the kernel's or one in user space, is a fact of the head node's machine."""
    return Role("nfs_exports", section=settings.storage)
