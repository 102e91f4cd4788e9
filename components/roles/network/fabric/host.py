"""The networks that a site's nodes share: reported, proven, recorded.

This comes after the tailnet and the munge key. The head node proves a node's fabric as it joins, and again later where
no node answered. Slurm distributes what is proven to all nodes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from subprocess import CalledProcessError
from typing import Any

from components.node import files, kernel, packages, systemd
from components.node.failure import Failure, run_program
from components.node.locks import Lock
from components.node.log import STATE_DIR, note
from components.node.run import run
from components.node.step.step import Step
from components.roles.network.fabric.networks import PORT, FabricError, interfaces, ports_up, select_ports
from components.roles.slurm.slurm.folders import NODES
from components.settings.network_names import ON_THE_TAILNET, is_interface

HEAD = f"{STATE_DIR}/head-address"
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
_ENROOT = "/etc/enroot"
_FILES = (f"{_ENROOT}/mounts.d/60-tailrack.fstab", f"{_ENROOT}/hooks.d/60-tailrack.sh")
_MOST_NEIGHBOURS = 4


def check_path(step: Step, head_address: str) -> None:
    """Write the file."""
    files.write(HEAD, head_address)


def join(step: Step, node_fabric: str, node_rdma: str) -> None:
    """Run the service, and report the networks."""
    if kernel.names_in("/sys/class/infiniband"):
        packages.ensure(step.host, "ibverbs-utils")
    _serve(step)
    networks: dict[str, Any] = {"interfaces": [], "rdma": []}
    if node_fabric != ON_THE_TAILNET:
        try:
            networks = networks_here(node_fabric, node_rdma)
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


def head(step: Step, values: HeadValues) -> None:
    """Prove the head node's own fabric."""
    check_path(step, values.head_address)
    if values.head_computes:
        prove_fabric(step, values, values.head_address)


def register(step: Step, values: NodeNetworks, node_address: str) -> None:
    """Prove it."""
    prove_fabric(step, values, node_address)


def leave(step: Step) -> None:
    """Remove its files for Enroot, and the folders that they leave empty."""
    for path in _FILES:
        files.remove(path)
    for name in files.names_in(_ENROOT):
        files.remove_if_empty(f"{_ENROOT}/{name}")
    files.remove_if_empty(_ENROOT)


def pod_join(step: Step, node_fabric: str) -> None:
    """Report the interface."""
    found = []
    if is_interface(node_fabric):
        packages.ensure(step.host, "iproute2")
        try:
            found = interfaces(node_fabric, ())
        except (FabricError, OSError, CalledProcessError) as error:
            raise Failure(
                str(error),
                f"write the interface of the pods' own network as fabric: of {step.host}'s site, or remove that key: "
                "then a job has one pod",
            ) from error
    step.result("fabric", {"interfaces": found, "rdma": []})


def pod_register(step: Step, values: NodeNetworks, node_address: str) -> None:
    """Record it, and report the pods of its site that came before."""
    from components.roles.network.fabric import groups

    name, neighbours = values.node_name, []
    if is_interface(values.node_fabric):
        networks: dict[str, Any] = json.loads(values.node_networks)
        mine = {"node": name, "site": values.node_site, "setting": values.node_fabric, "address": node_address}
        # Without groups: jobs over several pods take their interface from the config.
        record = {**mine, **networks, "since": time.time(), "groups": {}, "unproven": False, "asked": 0.0}
        files.make_folder(f"{NODES}/{name}")
        with groups.lock():
            groups.save(record)
            others = groups.other_records(record)
        neighbours = [
            {
                "name": other["node"],
                "address": other["interfaces"][0]["address"].partition("/")[0],
                "tailnet": other["address"],
            }
            for other in others[:_MOST_NEIGHBOURS]
        ]
    else:
        groups.remove(name)
    step.result("neighbours", neighbours)


@dataclass(frozen=True)
class NodeNetworks:
    """A node, its site, the site's setting, and the networks that may be the node's fabric, as JSON."""

    node_name: str
    node_site: str
    node_fabric: str
    node_networks: str


@dataclass(frozen=True)
class HeadValues(NodeNetworks):
    """The head node.

    head_address    its tailnet address
    head_computes   whether it runs jobs
    """

    head_address: str
    head_computes: bool


def prove_fabric(step: Step, values: NodeNetworks, address: str) -> None:
    """Prove the fabric of the node with a tailnet address."""
    from components.roles.network.fabric import groups

    name = values.node_name
    if values.node_fabric == ON_THE_TAILNET:
        groups.remove(name)
        return
    facts = {"node": name, "site": values.node_site, "setting": values.node_fabric, "address": address}
    try:
        answer = groups.prove_node({**json.loads(values.node_networks), **facts})
    except (FabricError, OSError, CalledProcessError) as error:
        raise Failure(
            f"the fabric of {name} cannot be proven: {error}",
            "see 'journalctl -u tailrack-fabric@*' there; or set fabric: tailnet at its site to use no fabric",
        ) from error
    note(f"fabric: {json.dumps(answer)}")
    if answer["error"]:
        raise Failure(
            answer["error"],
            f"see 'ip address' and firewalls on {name}; or set fabric: auto, tailnet or another interface at site "
            f"{values.node_site}",
        )
    step.result("fabric", answer)


def again(_arguments: Sequence[str]) -> int:
    """Run the command `fabric-again`: retry failed proofs, and give slurmctld what is proven now."""
    return run_program("tailrack-fabric-again", _again)


def _again() -> None:
    from components.roles.network.fabric.groups import prove_again
    from components.roles.slurm.slurm.controller import offer

    answer = prove_again()
    if not answer["proven"]:
        return
    note(f"proven: {json.dumps(answer)}")
    with Lock("tailrack"):
        if reason := offer(names=["topology.conf"]):
            raise Failure(reason, "see 'journalctl -u slurmctld'")
