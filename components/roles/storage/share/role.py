"""The share: NFS version 4 from the head node or a storage node, with one export file per member.

Every node mounts it.
"""

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import list_of, matching, truth, whole
from components.roles.program import launcher
from components.roles.role import KERNEL, File, Holder, Role, unit
from components.roles.storage.share.exports import LIST
from components.roles.storage.share.protect import CLOSED

PORTS = ("111", "2049", "20048")
PROGRAM = "/usr/local/sbin/tailrack-share"


def role(settings: ClusterSettings) -> Role:
    """Return the role. The server's machine decides between the kernel's server and one in user space."""
    storage = settings.storage
    server = "storage" if storage.node else "head"
    watched = ("/etc/passwd", "/etc/group", *([f"{storage.path}/{LIST}"] if storage.node else []))
    return Role(
        "share",
        modules=("host", "mount"),
        # The homes are made on the share: its server is the machine that makes them, or must serve first (order.py).
        after=("tailnet", "firewall", *(() if storage.node else ("users",))),
        values={
            "path": storage.path,
            "mount": storage.mount,
            "node": storage.node or "",
            "head": settings.head.name,
            "restored": settings.head.restore_from or "",
        },
        packages={server: ("acl",)},
        files={
            server: (
                File(PROGRAM, launcher("share"), mode="0755"),
                unit("share", "tailrack-share.path", watched="\n".join(f"PathChanged={path}" for path in watched)),
                unit("share", "tailrack-share-again.service"),
            )
        },
        # A path unit misses changes while systemd reads its units again. Machines without the program skip the task.
        tasks={"machine": (Task("close-share", (PROGRAM, "close"), sources=watched, target=CLOSED),)},
        facts={
            "check": {"kernel_nfs_server": truth, "open_ports": list_of(whole(1, 65535))},
            "head": {"own_file_system": truth},
            "storage": {"own_file_system": truth, "share_name": matching("[0-9a-f]{32}")},
        },
        # 111 and 20048 belong to NFS before version 4, whose helpers a package may start
        # (kernel_server.py).
        ports=PORTS,
        udp_ports=PORTS,
        holders={"2049": Holder(KERNEL)},
        serves=("2049",),
        state=("/etc/exports.d/tailrack-*.exports",),
    )
