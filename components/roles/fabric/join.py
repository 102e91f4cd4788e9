"""Find the networks that may be this machine's fabric, and run the service that takes part in proofs.

This comes after the tailnet and the munge key.
"""

from __future__ import annotations

from dataclasses import dataclass
from subprocess import CalledProcessError
from typing import Any

from components.node import files, kernel, packages, systemd
from components.node.failure import Failure
from components.node.run import run
from components.node.step.step import Step
from components.roles.fabric.check_path import HEAD
from components.roles.fabric.networks import FabricError, interfaces
from components.roles.fabric.proof import PORT
from components.roles.fabric.rails import ports_up, select_ports
from components.settings.network_names import ON_THE_TAILNET

PROGRAM = "/usr/local/lib/tailrack/fabric.py"
SOCKET, SERVICE = "tailrack-fabric.socket", "tailrack-fabric@.service"

# FreeBind, because the tailnet's address may not exist yet at boot.
_SOCKET_TEXT = """[Unit]
Description=Accept the head node's requests to prove the fabric

[Socket]
ListenStream={address}:{port}
FreeBind=yes
Accept=yes
MaxConnections=32
# Otherwise many connections would make systemd close the socket for good.
TriggerLimitIntervalSec=0

[Install]
WantedBy=sockets.target"""
_SERVICE_TEXT = """[Unit]
Description=Prove the fabric with another node
# A refused request is only an entry in the journal, not a failed unit.
CollectMode=inactive-or-failed

[Service]
ExecStart={program} serve {host} {head}
StandardInput=socket
StandardOutput=socket
StandardError=journal
RuntimeMaxSec=60
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_NET_RAW"""


@dataclass(frozen=True)
class JoinValues:
    """The site's settings.

    node_fabric   `auto`, `tailnet`, or the name of an interface
    node_rdma     `auto`, `none`, or names of RDMA devices, separated by commas
    """

    node_fabric: str
    node_rdma: str


def join(step: Step, values: JoinValues) -> None:
    """Run the service, and report the networks."""
    if kernel.names_in("/sys/class/infiniband"):
        packages.ensure(step.host, "ibverbs-utils")
    _serve(step)
    networks: dict[str, Any] = {"interfaces": [], "rdma": []}
    if values.node_fabric != ON_THE_TAILNET:
        try:
            networks = networks_here(values.node_fabric, values.node_rdma)
        except (FabricError, OSError, CalledProcessError) as error:
            raise Failure(
                str(error),
                f"correct fabric: or rdma: of {step.host}'s site: use auto, or names that its nodes have ('ip -brief "
                "address', 'ls /sys/class/infiniband')",
            ) from error
    step.result("fabric", networks)


def networks_here(fabric: str, rdma: str) -> dict[str, Any]:
    """Return this machine's interfaces and RDMA ports that may be its site's fabric. Raises FabricError."""
    ports = ports_up()
    return {
        "interfaces": interfaces(fabric, {port["interface"] for port in ports}),
        "rdma": select_ports(ports, rdma),
    }


def _serve(step: Step) -> None:
    """Listen on the tailnet's address only."""
    address = run("tailscale", "ip", "-4").strip()
    changed = files.write_all(
        [
            files.File(f"{systemd.UNITS}/{SOCKET}", _SOCKET_TEXT.format(address=address, port=PORT)),
            files.File(f"{systemd.UNITS}/{SERVICE}", _SERVICE_TEXT.format(program=PROGRAM, host=step.host, head=HEAD)),
        ]
    )
    systemd.reload(SOCKET)
    systemd.enable(SOCKET)
    if changed or not systemd.is_active(SOCKET):
        run("systemctl", "restart", SOCKET)
