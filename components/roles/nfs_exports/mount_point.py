"""The share's mount point, and the unit that mounts the share there."""

from __future__ import annotations

import stat
from dataclasses import dataclass

from components.node import files, systemd
from components.roles.nfs_exports.previous_units import NFS_BEFORE


@dataclass(frozen=True)
class MountPoint:
    """Where the share is, or will be, mounted."""

    nfs_exports_mount: str


def mount_unit(path: str, kind: str = "mount") -> str:
    """Return the path of the file of the mount point's unit: its `mount` or its `automount`."""
    return f"{systemd.UNITS}/{systemd.name_of_path(path)}.{kind}"


def ensure_mount_point(path: str) -> None:
    """Create the share's mount point, and note that it did not exist."""
    try:
        if files.kind_of(path) == stat.S_IFDIR:
            return
    except OSError:
        # A mount is there whose server is gone.
        return
    files.add_line(NFS_BEFORE, f"folder {path}")
    files.make_folder(path)
