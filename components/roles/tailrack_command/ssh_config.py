"""`tailrack ssh-config`: print Host blocks with which ssh on a user's computer reaches all machines of the cluster."""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import pwd
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from components.node.state import STATE_DIR
from components.roles.ssh_trust.certificate import AUTHORITIES
from components.roles.tailrack_command.host_blocks import Facts, Login, blocks

NAME, HELP = "ssh-config", "print the lines for ~/.ssh/config with which you log in to the head node and to nodes"
# Address and name of each machine of the cluster, and the head node's records of nodes. All users can read them.
NAMES, MEMBERS = Path(f"{STATE_DIR}/names"), Path(f"{STATE_DIR}/members")
_AUTHORITIES = Path(AUTHORITIES)
DEFAULT_PORT = 22


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--head", metavar="ADDRESS", help="address of the head node as your computer reaches it")
    parser.add_argument("--port", type=int, help="its SSH port there")
    parser.add_argument("--json", action="store_true", help="print the names, ports and authorities as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Print the blocks."""
    try:
        facts = read_facts()
        if arguments.json:
            print(json.dumps(asdict(facts), indent=2))
            return 0
        address, port = reached() if arguments.head is None else (arguments.head, DEFAULT_PORT)
        user = pwd.getpwuid(os.getuid()).pw_name
        text = blocks(logins(facts, user, address, arguments.port or port), facts.authorities)
    except (OSError, ValueError) as error:
        print(f"tailrack: {error}", file=sys.stderr)
        return 1
    print(f"# Printed by tailrack ssh-config on {facts.head}: lines for your computer's ~/.ssh/config.\n{text}", end="")
    return 0


def logins(facts: Facts, user: str, address: str, port: int) -> Sequence[Login]:
    """Return the logins of a user: directly to the head node, and through it to nodes."""
    head = Login(facts.head, user, port, address)
    return [head, *(Login(node, user, facts.ports.get(node, 22), jump=facts.head) for node in facts.nodes)]


def read_facts() -> Facts:
    """Return the cluster's facts on its head node. Raises OSError and ValueError."""
    head = socket.gethostname()
    rows = [line.split() for line in NAMES.read_text(encoding="utf-8").splitlines()]
    nodes = [row[1] for row in rows if len(row) == 2 and row[1] != head]
    keys = [line for line in _AUTHORITIES.read_text(encoding="utf-8").splitlines() if line.startswith("ssh-")]
    ports = {node: port for node in nodes if (port := _port(node)) != DEFAULT_PORT}
    return Facts.read({"head": head, "nodes": nodes, "ports": ports, "authorities": keys})


def _port(node: str) -> int:
    try:
        return int((MEMBERS / node / "sshd_port").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return DEFAULT_PORT


def reached() -> tuple[str, int]:
    """Return the address and port at which the caller's ssh reached this machine. Raises ValueError."""
    # Both addresses and ports, of the client and of this machine.
    words = os.environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:
        raise ValueError("you did not come by SSH: add --head ADDRESS, the head node's address on your computer")
    client, _, server, port = words
    if ipaddress.ip_address(server).is_private and ipaddress.ip_address(client).is_global:
        raise ValueError(
            f"the head node's own address {server} is not the one that you reached: add --head ADDRESS, the address "
            "that you gave to ssh"
        )
    return server, int(port)
