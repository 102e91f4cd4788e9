"""Stop the portmapper and the lock daemon, which their packages start on all interfaces.

NFS version 4 does not need them. Keep them if foreign NFS before version 4 does.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, systemd
from components.node.log import note
from components.node.run import attempt, run
from components.node.step.step import Step
from components.roles.nfs_exports.mount_point import mount_unit
from components.roles.nfs_exports.previous_units import NFS_BEFORE, note_units, restore_units

_UNITS = (
    *("rpcbind.socket", "rpcbind.service", "rpc-statd.service", "rpc-statd-notify.service"),
    "nfs-ganesha-lock.service",
)
_PORTMAPPER = "111"


@dataclass(frozen=True)
class OldNfs:
    """Where the share is mounted, and the ports that foreign NFS needs here, which the check step has found."""

    nfs_exports_mount: str
    node_open_ports: list[str]


def machine(step: Step, values: OldNfs) -> None:
    """Mask and stop the units, or restore them."""
    if _PORTMAPPER in values.node_open_ports:
        note(
            "this machine uses NFS before version 4: keeping rpcbind and rpc.statd, and ports "
            f"{', '.join(values.node_open_ports)} open"
        )
        # If that NFS is new, undo the masks that the cluster set before.
        restore_units(r"^unit (rpc|nfs-ganesha-lock)")
        return
    # If a release that noted nothing was here, the masks are ours, not the owner's.
    note_units(*_UNITS, older=not files.exists(NFS_BEFORE) and files.exists(mount_unit(values.nfs_exports_mount)))
    _mask()
    # An interrupted step may not have reloaded systemd.
    if set(run("systemctl", "show", "-P", "LoadState", *_UNITS).split()) - {"masked"}:
        systemd.reload_later(step)
    # Nor may it have stopped them. A missing unit cannot be stopped.
    if not attempt("systemctl", "stop", "-q", *_UNITS).ok:
        note(f"not all of {' '.join(_UNITS)} exist")


def _mask() -> None:
    """Mask units that do not exist too, because a package that comes later must not start them."""
    unmasked = [unit for unit in _UNITS if files.followed(f"{systemd.UNITS}/{unit}") != "/dev/null"]
    # Write the links without systemd, which would otherwise take all loaded units for outdated. It masks none of
    # several units if one of them fails.
    mask = ("systemctl", "--root=/", "mask", "-q")
    if unmasked and not attempt(*mask, *unmasked).ok:
        for unit in unmasked:
            if not attempt(*mask, unit).ok:
                note(f"cannot mask {unit}")
