"""Stop mounting and serving the share, keep its files, and restore the machine's earlier NFS units."""

from __future__ import annotations

from components.node import files, systemd
from components.node.log import note
from components.node.mounts import mounts_at
from components.node.parts import do_each
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.nfs_exports import ganesha, kernel_server, share
from components.roles.nfs_exports.foreign import EXPORTS_DIR, GANESHA_FILE, ganesha_is_ours
from components.roles.nfs_exports.mount_point import MountPoint, mount_unit
from components.roles.nfs_exports.previous_units import NFS_BEFORE, ran_before, restore_units

_PROGRAM = "/usr/local/sbin/tailrack-share"
_PATH, _AGAIN, _SERVICE = "tailrack-share.path", "tailrack-share-again.service", "tailrack-share.service"
# After a boot the share is mounted twice on the head node: tailrack-share's mount over the folder appears at the mount
# point too.
_MOST_MOUNTS = 4


def leave(step: Step, values: MountPoint) -> None:
    """Undo the work of all phases."""
    do_each(lambda: _leave_mounts(values.nfs_exports_mount), _leave_share, _leave_server, restore_units)
    files.remove(NFS_BEFORE)


def _leave_mounts(mount: str) -> None:
    name = systemd.name_of_path(mount)
    mount_file, automount_file = mount_unit(mount), mount_unit(mount, "automount")
    if files.exists(automount_file):
        _disable(f"{name}.automount")
        attempt("systemctl", "stop", f"{name}.mount")
    elif files.exists(mount_file):
        # On the head node users may be working there, on a disk that stays.
        attempt("systemctl", "disable", "-q", f"{name}.mount")
        for _ in range(_MOST_MOUNTS):
            if mounts_at(mount):
                attempt("umount", "-l", mount)
    files.remove(automount_file)
    files.remove(mount_file)


def _leave_share() -> None:
    if files.exists(f"{systemd.UNITS}/{_PATH}"):
        # Stop the units that react to account changes first: otherwise their start job replaces the stop job, which
        # then fails ("Job for tailrack-share.service canceled").
        _disable(_PATH)
        attempt("systemctl", "stop", _AGAIN)
        _disable(_SERVICE)
        if files.exists(share.SETTINGS):
            do_each(share.open_share)
        for path in (*(f"{systemd.UNITS}/{unit}" for unit in (_PATH, _SERVICE, _AGAIN)), _PROGRAM, share.SETTINGS):
            files.remove(path)
    attempt("systemctl", "daemon-reload")


def _leave_server() -> None:
    """On the head node: leave its server, if tailrack set it up."""
    names = [name for name in files.names_in(EXPORTS_DIR) if name.startswith("tailrack-") and name.endswith(".exports")]
    for name in names:
        files.remove(f"{EXPORTS_DIR}/{name}")
    # The kernel's server may have other exports too.
    if names and systemd.is_active(kernel_server.SERVER):
        attempt("exportfs", "-ra")
    if files.remove(kernel_server.KERNEL_SERVER_FILE):
        _disable(kernel_server.SERVER)
        # Stop units that the kernel's server started, unless they ran before.
        for unit in kernel_server.STARTED_UNITS:
            if not ran_before(unit) and not attempt("systemctl", "stop", unit).ok:
                note(f"{unit} is still in use")
    elif ganesha_is_ours():
        _disable(ganesha.SERVER)
        for path in (f"{ganesha.UNIT_FOLDER}/tailrack.conf", f"{ganesha.UNIT_FOLDER}/tailrack-restart.conf"):
            files.remove(path)
        files.remove(GANESHA_FILE)
        if files.exists(ganesha.BEFORE):
            files.rename(ganesha.BEFORE, GANESHA_FILE)


def _disable(unit: str) -> None:
    attempt("systemctl", "disable", "-q", "--now", unit)
