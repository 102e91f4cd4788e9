"""Serve the share on the head node, and mount its own folder where nodes mount the share.

NFS version 4 only, with one export file per member for its one address: the kernel's server if the kernel has one;
otherwise nfs-ganesha in user space, from the same files.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass

from components.node import files, packages, systemd
from components.node.mounts import mounts
from components.node.step.step import Step
from components.roles.nfs_exports import ganesha
from components.roles.nfs_exports.close_share import close_share
from components.roles.nfs_exports.foreign import ganesha_is_ours
from components.roles.nfs_exports.kernel_server import KERNEL_SERVER_FILE, SERVER, STARTED_UNITS, ensure_kernel_server
from components.roles.nfs_exports.mount_point import ensure_mount_point, mount_unit
from components.roles.nfs_exports.previous_units import note_units
from components.roles.users.accounts import Account

_MOUNT = """[Unit]
Description=The cluster's share, on the machine that serves it

[Mount]
What={path}
Where={mount}
Type=none
Options=bind,nosuid,nodev
LazyUnmount=yes

[Install]
WantedBy=multi-user.target"""
_SHARE_UNIT = """[Unit]
Description=Close the share to set-uid programs and to accounts outside the cluster
After=local-fs.target
RequiresMountsFor={path}
Before=systemd-user-sessions.service nfs-server.service nfs-ganesha.service slurmd.service
# Several accounts may be created in a row.
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/tailrack-share close

[Install]
WantedBy=multi-user.target"""


@dataclass(frozen=True)
class ServerValues:
    """The share's folder and mount point, the cluster's users, and whether the kernel has an NFS server."""

    nfs_exports_path: str
    nfs_exports_mount: str
    users_lines: list[Account]
    head_kernel_nfs: bool


def head(step: Step, values: ServerValues) -> None:
    """Serve the share, closed to others before any node mounts it."""
    path = values.nfs_exports_path
    if values.head_kernel_nfs:
        note_units(SERVER, older=files.exists(KERNEL_SERVER_FILE))
        note_units(*STARTED_UNITS)
        packages.ensure(step.host, "nfs-kernel-server")
    else:
        note_units(ganesha.SERVER, older=ganesha_is_ours())
        packages.ensure(step.host, "nfs-ganesha", "nfs-ganesha-vfs")
    step.result("own_file_system", share_is_a_file_system(path))
    _ensure_local_mount(path, values.nfs_exports_mount)
    close_share(step, values)
    _ensure_share_unit(path)
    if values.head_kernel_nfs:
        ensure_kernel_server(step.host)
    else:
        ganesha.ensure_ganesha(path)


def share_is_a_file_system(path: str) -> bool:
    """Return whether the share is all of its file system, wherever that is mounted.

    With a forged handle a client reaches every file of the file system, in the share or not (no_subtree_check).
    """
    everything, folder = mounts(), files.real_path(path)
    own = next((mount for mount in reversed(everything) if mount.target == folder), None)
    if own is None:
        return False
    inside = f"{own.root.rstrip('/')}/"
    # A mounted file, as in containers, gives no access to others.
    return all(
        f"{mount.root.rstrip('/')}/".startswith(inside) or files.kind_of(mount.target) != stat.S_IFDIR
        for mount in everything
        if mount.device == own.device
    )


def _ensure_local_mount(path: str, mount: str) -> None:
    """Bind the folder to the mount point. It ends lazily, because users may be working there."""
    unit = f"{systemd.name_of_path(mount)}.mount"
    ensure_mount_point(mount)
    files.write(mount_unit(mount), _MOUNT.format(path=path, mount=mount))
    systemd.reload(unit)
    systemd.enable(unit, now=True)


def _ensure_share_unit(path: str) -> None:
    """Close the share at boot before logins and servers, and whenever the machine's accounts change."""
    service, watcher = "tailrack-share.service", "tailrack-share.path"
    files.write(f"{systemd.UNITS}/{service}", _SHARE_UNIT.format(path=path))
    systemd.reload(service, watcher)
    systemd.enable(service)
    systemd.enable(watcher, now=True)
