"""Mounts by site: NFS version 4 of other servers, and file systems that providers mount.

Systemd mounts at first use. A task checks each mount with a time limit, reports to the health check, and gives the
node the feature of each mount that works.
"""

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher
from components.roles.role import Role
from components.roles.storage.mounts.units import INSTALLED, PROGRAM


def role(settings: ClusterSettings) -> Role:
    """Return the role, for every node, so that nodes unmount what the config does not name any more."""
    homes = settings.storage.homes
    mounts = [*settings.storage.mounts, *([homes] if homes else [])]
    phases = ("compute", "login") if settings.head.compute else ("compute", "login", "head")
    return Role(
        "mounts",
        after=("users", "share"),
        values={
            "table": [
                (
                    *(mount.path, mount.type, mount.source or "", ",".join(mount.options)),
                    *(mount.read_only, mount.required or mount is homes, mount.tailnet, ",".join(mount.sites or ())),
                    f"{mount.path}/{settings.users[0].name}" if mount is homes else "",
                )
                for mount in mounts
            ]
        },
        only_where={} if mounts else dict.fromkeys(("compute", "login", "head"), INSTALLED),
        # Where the config has no mounts any more, it finishes what waits for jobs, and removes its program.
        tasks=dict.fromkeys(phases, (Task("mounts", (PROGRAM,), limit=300, settings=("Nice=10",)),)),
        texts={"program": launcher("mounts") if mounts else ""},
    )
