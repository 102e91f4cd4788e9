"""Mount the share on a node: at first use, after the tailnet has its address, again after every restart."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, packages, systemd
from components.node.failure import Failure
from components.node.log import note
from components.node.mounts import mounts_at
from components.node.run import attempt, exists, run
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.nfs_exports.mount_point import ensure_mount_point, mount_unit

# Seconds for a mount, and for the step to wait for it. mount.nfs4 retries for two minutes on its own; the first path to
# a server may use a relay, and a starting server takes a while.
SHARE_WAIT = 300
# Seconds for a look at the share.
_LOOK = 20

# Other machines' root can create any file on the share, so no program from it may run with other rights here.
SHARE_OPTIONS = "hard,nosuid,nodev,nfsvers=4.2,_netdev"
_MOUNT = """[Unit]
Description=The cluster's share
After=tailrack-tailnet.service
Requires=tailrack-tailnet.service
# A server that is down for a while must not make systemd give up the mount.
StartLimitIntervalSec=0

[Mount]
What={share}
Where={mount}
Type=nfs4
Options={options}
TimeoutSec={seconds}"""
_AUTOMOUNT = """[Unit]
Description=The cluster's share, mounted at first use

[Automount]
Where={mount}

[Install]
WantedBy=multi-user.target"""


@dataclass(frozen=True)
class ShareOfHead:
    """The server, its folder, and the mount point on every node.

    nfs_exports_restored   the backup from which the head node was restored, empty without one
    """

    head_address: str
    nfs_exports_path: str
    nfs_exports_mount: str
    nfs_exports_restored: str


def node(step: Step, values: ShareOfHead) -> None:
    """Mount the share and wait until it answers."""
    mount = values.nfs_exports_mount
    share = f"{values.head_address}:{values.nfs_exports_path}"
    if not exists("mount.nfs4"):
        packages.ensure(step.host, "nfs-common")
    ensure_mount_point(mount)
    mount_name, automount_name = (f"{systemd.name_of_path(mount)}.{kind}" for kind in ("mount", "automount"))
    files.write(mount_unit(mount), _MOUNT.format(share=share, mount=mount, options=SHARE_OPTIONS, seconds=SHARE_WAIT))
    files.write(mount_unit(mount, "automount"), _AUTOMOUNT.format(mount=mount))
    systemd.reload(mount_name, automount_name)
    # Without systemd's own automount.
    sources = [found.source for found in mounts_at(mount) if found.type != "autofs"]
    if sources and values.nfs_exports_restored and _is_stale(mount):
        note("the mounted share is lost with its server: mounting it again")
        run("umount", "-l", mount)
        run("systemctl", "stop", automount_name, mount_name)
    elif sources and sources != [share]:
        run("systemctl", "stop", automount_name, mount_name)
    systemd.enable(automount_name)
    if not systemd.is_active(automount_name):
        if not attempt("systemctl", "reset-failed", automount_name, mount_name).ok:
            note("no unit had failed")
        run("systemctl", "start", automount_name)
    if not wait_until(lambda: _answers(mount), SHARE_WAIT):
        shown = attempt("systemctl", "show", "-P", "Result", mount_name)
        raise Failure(
            f"the share {share} does not mount at {mount} within {SHARE_WAIT}s (systemd says: "
            f"{shown.output.strip() if shown.ok else 'unknown'})",
            f"see 'journalctl -u {mount_name}' on {step.host} and the NFS server's log on the head node",
        )


def _answers(mount: str) -> bool:
    return attempt("stat", "-t", files.on_disk(f"{mount}/home"), limit=_LOOK).ok


def _is_stale(mount: str) -> bool:
    """Return whether the server was replaced by another machine at the same address, which lacks the old handles."""
    paths = (files.on_disk(path) for path in (mount, f"{mount}/home"))
    return "Stale file handle" in attempt("stat", "-t", *paths, limit=_LOOK, keep_errors=True).errors
