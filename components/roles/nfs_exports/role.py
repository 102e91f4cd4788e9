"""The share: NFS version 4 from the head node, with one export file per member; every node mounts it."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import list_of, truth, whole
from components.roles.program import launcher
from components.roles.role import KERNEL, File, Holder, Role, unit

PORTS = ("111", "2049", "20048")
PROGRAM, UNITS = "tailrack-share", ("tailrack-share.path", "tailrack-share-again.service")


def role(settings: ClusterSettings) -> Role:
    """Return the role. The head node's machine decides between the kernel's server and one in user space."""
    return Role(
        "nfs_exports",
        modules=("host", "mount"),
        after=("tailnet", "firewall", "users"),
        values={
            "path": settings.storage.path,
            "mount": settings.storage.mount,
            "restored": settings.head.restore_from or "",
        },
        packages={"head": ("acl",)},
        files={
            "head": (
                File(f"/usr/local/sbin/{PROGRAM}", launcher("share"), mode="0755"),
                *(unit("nfs_exports", name) for name in UNITS),
            )
        },
        facts={
            "check": {"kernel_nfs_server": truth, "open_ports": list_of(whole(1, 65535))},
            "head": {"own_file_system": truth},
        },
        # 111 and 20048 belong to NFS before version 4, whose helpers a package may start
        # (kernel_server.py).
        ports=PORTS,
        udp_ports=PORTS,
        holders={"2049": Holder(KERNEL)},
        serves=("2049",),
        state=("/etc/exports.d/tailrack-*.exports",),
    )
