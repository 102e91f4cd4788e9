"""The share: NFS version 4 from the head node, one export file a member, mounted by every node."""

from __future__ import annotations

from components.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """Which server it is, the kernel's or one in user space, is a fact of the head node's machine."""
    # 111 and 20048 are those of NFS before version 4, whose helpers a package may start.
    return Role("nfs_exports", section=settings.storage, ports=("111", "2049", "20048"), serves=("2049",))
