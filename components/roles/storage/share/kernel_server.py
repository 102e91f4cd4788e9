"""The kernel's NFS server: version 4 only, unless this machine has other exports."""

from components.node import files, systemd
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt, run
from components.roles.storage.share.exports import foreign_exports

KERNEL_SERVER_FILE = "/etc/nfs.conf.d/tailrack.conf"
# One of the closed ports (role.py).
MOUNTD_PORT = 20048
SERVER = "nfs-server"
# Units that the server brings up.
STARTED_UNITS = ("fsidd.service", "nfsdcld.service", "proc-fs-nfsd.mount", "run-rpc_pipefs.mount")

# The lease time decides how long clients keep a dead connection (that long) and how often they retry (twice as often):
# with the kernel's 90 s a node could be back a minute and a half too late after an outage.
_VERSION_4_ONLY = "[nfsd]\nvers2=n\nvers3=n\nvers4=y\nlease-time=30\ngrace-time=30"


def ensure_kernel_server(host: str) -> None:
    """Configure the server, run it, and make it read all export files."""
    changed = files.write(KERNEL_SERVER_FILE, configuration())
    # It starts units of NFS before version 4, unless systemd has already read their masks (mount.py).
    systemd.keep_running("nfs-mountd.service", "nfsdcld.service")
    systemd.reload_stale()
    systemd.enable(f"{SERVER}.service")
    if changed or not systemd.is_active(SERVER):
        run("systemctl", "restart", SERVER)
    _require_mountds_port(host)
    run("exportfs", "-ra")


def reload_kernel_server() -> None:
    """Start the server if it does not run, and make it read all export files."""
    if not systemd.is_active(SERVER):
        run("systemctl", "restart", SERVER)
    run("exportfs", "-ra")


def configuration() -> str:
    """Return the server's configuration.

    rpc.mountd listens for clients of versions 2 and 3: with both off nowhere, with one on at any port. Machines whose
    foreign clients use version 3 keep it; the share is exported only to members anyway.
    """
    mountd = f"# Written by tailrack.\n[mountd]\nport={MOUNTD_PORT}"
    return mountd if foreign_exports() else f"{mountd}\n{_VERSION_4_ONLY}"


def _require_mountds_port(host: str) -> None:
    """Raise Failure if mountd uses another port: a later file in /etc/nfs.conf.d overrides ours."""
    rows = [line.split() for line in attempt("ss", "-Hlntup").output.splitlines() if '"rpc.mountd"' in line]
    others = [f"{row[0]} {row[4]}" for row in rows if not row[4].endswith(f":{MOUNTD_PORT}")]
    if others:
        note("\n".join(others))
        raise Failure(
            "rpc.mountd listens on ports that the cluster's rules do not close",
            f"look for vers2, vers3 or mountd's port in /etc/nfs.conf and /etc/nfs.conf.d on {host}, remove the "
            "setting, then run up again",
        )
