"""Check whether the kernel can serve the share, which foreign NFS is in use, and whether the mount point is free."""

from __future__ import annotations

import stat

from components.node import files, kernel
from components.node.failure import Failure
from components.node.mounts import mounts_at
from components.node.run import succeeds
from components.node.step.step import Step
from components.roles.nfs_exports.foreign import foreign_nfs_ports, fstab
from components.roles.nfs_exports.mount_point import MountPoint, mount_unit

# Names of files to show.
_MOST_NAMES = 3


def check(step: Step, values: MountPoint) -> None:
    """Refuse a machine whose mount point is taken, and report facts about the others."""
    path = values.nfs_exports_mount
    taken = "" if _share_is_ours(path) else conflict(path)
    if taken:
        raise Failure(
            f"the share cannot be mounted at {path}, which is {taken} on this machine",
            f"set tailrack:storage.mount to another folder, for all machines, or free {path} on {step.host}",
        )
    step.result("kernel_nfs_server", _kernel_knows("nfsd"))
    step.result("open_ports", list(foreign_nfs_ports()))


def _share_is_ours(path: str) -> bool:
    """Return whether an earlier `up` has written the mount unit."""
    return any(line.startswith("Description=The cluster's share") for line in files.lines(mount_unit(path)))


def conflict(path: str) -> str:
    """Return what occupies a mount point; empty if nothing does.

    A foreign mount would make the step fail halfway, and files would be hidden silently.
    """
    entries = [f"{mount.source} {mount.type}" for mount in mounts_at(path)][-1:]
    entries = entries or [f"{row[0]} {row[2]}" for row in map(str.split, fstab()) if row[1:2] == [path] and row[2:]]
    if entries:
        return f"another mount ({', '.join(entries)})"
    kind = files.kind_of(path)
    if kind == stat.S_IFLNK:
        return "a link"
    if kind not in (0, stat.S_IFDIR):
        return "not a folder"
    names = files.names_in_any(path)[:_MOST_NAMES] if kind else []
    return f"a folder with files ({' '.join(names)})" if names else ""


def _kernel_knows(file_system: str) -> bool:
    return any(file_system in line.split() for line in kernel.read("/proc/filesystems").splitlines()) or succeeds(
        "modprobe", "-n", file_system
    )
