"""Accept a node's address only if the head node sees the same in the tailnet."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from components.node.failure import Failure
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.tailnet.tailscale import status_of_all

# slurmd's port. slurmd need not run yet: a closed port refuses at once, a firewall drops silently.
_NODE_PORT = 6818
# The list follows the control server with some delay.
LISTED_SECONDS = 30
_ANSWER_SECONDS = 20
_TRY_SECONDS = 5


@dataclass(frozen=True)
class NodeValues:
    """A node as it reports itself.

    node_firewall   firewalls found on the node (firewalls.py), for the message; empty if none
    """

    node_name: str
    node_address: str
    node_firewall: str


def register(step: Step, values: NodeValues) -> None:
    """Check that the node is where it says, and answers."""
    name, address = values.node_name, values.node_address
    if not wait_until(lambda: _is_at_its_address(name, address), LISTED_SECONDS):
        raise Failure(
            f"the tailnet has no machine {name} at {address}, the address that {name} reports",
            f"see 'tailscale status' on {step.host}; a name that was taken already ({name}-1) is freed by removing the "
            "old machine there",
        )
    _require_answer(values)


def _is_at_its_address(name: str, address: str) -> bool:
    """Return whether the head node's list of the tailnet has this name once at this address."""
    peers = ((status_of_all() or {}).get("Peer") or {}).values()
    found = [
        peer
        for peer in peers
        if str(peer.get("DNSName", "")).partition(".")[0] == name and address in (peer.get("TailscaleIPs") or ())
    ]
    return len(found) == 1


def _answers(address: str) -> bool:
    """Return whether anything answers over the tailnet, also with a refusal."""
    try:
        with socket.create_connection((address, _NODE_PORT), _TRY_SECONDS):
            return True
    except OSError as error:
        return error.errno == errno.ECONNREFUSED


def _require_answer(values: NodeValues) -> None:
    """Require an answer. Slurm's jobs arrive this way, so a node that the head node cannot reach must not count."""
    if wait_until(lambda: _answers(values.node_address), _ANSWER_SECONDS):
        return
    found = f" (found: {values.node_firewall.replace('+', ', ')})" if values.node_firewall else ""
    raise Failure(
        f"nothing answers on {values.node_name} at its tailnet address, {values.node_address} port {_NODE_PORT}, "
        f"although it is in the tailnet: a firewall on the machine{found}, tailscale's shields-up or the tailnet's "
        "policy blocks the head node",
        f"on {values.node_name} allow input on tailscale0: 'ufw allow in on tailscale0', 'firewall-cmd --permanent "
        "--zone=trusted --add-interface=tailscale0', or a rule 'iifname tailscale0 accept' before the one that drops "
        "('nft list ruleset'); 'tailscale set --shields-up=false' there; and see that the tailnet's policy lets the "
        "cluster's machines reach one another on all ports",
    )
