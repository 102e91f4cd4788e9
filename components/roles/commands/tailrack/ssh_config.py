"""`tailrack ssh-config`: print Host blocks with which ssh on a user's computer reaches all machines of the cluster.

The blocks are log-in nodes and the head node, and other nodes behind the first of them, with the cluster's authority as
known host.
All values come from machines, so each of them is checked: a line of this file can run any program.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import pwd
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from components.node.log import STATE_DIR
from components.roles.access.ssh_trust.certificate import AUTHORITIES
from components.roles.network.names.host import LOGIN
from components.validation.untrusted import read

NAME, HELP = "ssh-config", "print the lines for ~/.ssh/config with which you log in to the head node and to nodes"
# Address and name of each machine of the cluster, and the head node's records of nodes. All users can read them.
NAMES, MEMBERS = Path(f"{STATE_DIR}/names"), Path(f"{STATE_DIR}/members")
_AUTHORITIES = Path(AUTHORITIES)
DEFAULT_PORT = 22
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_Name = Annotated[str, _NAME.pattern]
_ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9a-fA-F:.]{2,45}")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9._-]{0,63}")
_KEY = re.compile(r"[a-z0-9@.-]{1,60} [A-Za-z0-9+/]{20,2000}={0,2}")
# A path in quotes. ssh would replace a % or $ in it.
_PATH = re.compile(r"[^\"%$\\\x00-\x1f\x7f]{1,4096}")


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
    """Return the logins of a user: directly to log-in nodes and the head node, and through the first to nodes."""
    direct = [
        *(Login(name, user, *facts.logins[name]) for name in facts.logins),
        Login(facts.head, user, port, address),
    ]
    others = [node for node in facts.nodes if node not in facts.logins]
    return [*direct, *(Login(node, user, facts.ports.get(node, 22), jump=direct[0].name) for node in others)]


def read_facts() -> Facts:
    """Return the cluster's facts on its head node. Raises OSError and ValueError."""
    head = socket.gethostname()
    rows = [line.split() for line in NAMES.read_text(encoding="utf-8").splitlines()]
    nodes = [row[1] for row in rows if len(row) == 2 and row[1] != head]
    keys = [line for line in _AUTHORITIES.read_text(encoding="utf-8").splitlines() if line.startswith("ssh-")]
    ports = {node: port for node in nodes if (port := _port(node)) != DEFAULT_PORT}
    gates = {node: (int(words[1]), words[0]) for node in nodes if len(words := _login_address(node)) == 2}
    return Facts.read({"head": head, "nodes": nodes, "ports": ports, "authorities": keys, "logins": gates})


def _login_address(node: str) -> list[str]:
    try:
        return (MEMBERS / node / LOGIN).read_text(encoding="utf-8").split()
    except OSError:
        return []


def _port(node: str) -> int:
    try:
        return int((MEMBERS / node / "sshd_port").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return DEFAULT_PORT


def reached() -> tuple[str, int]:
    """Return the address and port at which the caller's ssh reached this head node. Raises ValueError."""
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


@dataclass(frozen=True)
class Login:
    """How one person logs in to a machine.

    address    for ssh; empty for a node, which the head node finds by its name
    identity   the private key's file; empty if ssh finds the key
    jump       the name of the block through which the connection goes; empty for none
    keys       for a machine outside the cluster, its host key; otherwise the authorities vouch for it
    """

    name: str
    user: str
    port: int = DEFAULT_PORT
    address: str = ""
    identity: str = ""
    jump: str = ""
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not safe in a line of ssh's configuration."""
        optional = [(self.jump, _NAME), (self.address, _ADDRESS), (self.identity, _PATH)]
        values = [(self.name, _NAME), (self.user, _USER), *((key, _KEY) for key in self.keys)]
        for value, pattern in [*values, *((value, pattern) for value, pattern in optional if value)]:
            if not pattern.fullmatch(value):
                raise ValueError(f"{value!r} cannot be in a configuration of ssh")
        if not 0 < self.port < 65536:
            raise ValueError(f"{self.port} is not a port")


@dataclass(frozen=True)
class Facts:
    """The facts of a cluster that a configuration needs.

    head, nodes   names
    ports         of nodes whose sshd has another port than 22
    authorities   public keys that vouch for all of these; two during a change
    logins        port and address of log-in nodes; a head node of an earlier release reports none
    """

    head: _Name
    nodes: tuple[_Name, ...]
    ports: Mapping[_Name, int]
    authorities: tuple[Annotated[str, _KEY.pattern], ...]
    logins: Mapping[_Name, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, data: Any) -> Facts:
        """Read JSON data. Raises ValueError for anything else."""
        try:
            facts = read(cls, data)
        except ValueError as error:
            raise ValueError("these are no facts of a cluster") from error
        if not facts.authorities:
            raise ValueError("these are no facts of a cluster")
        return facts


def blocks(logins: Sequence[Login], authorities: Sequence[str]) -> str:
    """Return the Host blocks for logins, each kind of them once."""
    return "\n".join(line for block in _blocks(logins, authorities) for line in ["", *block]) + "\n"


def _blocks(logins: Sequence[Login], authorities: Sequence[str]) -> Iterator[list[str]]:
    kinds: dict[tuple[str, ...], list[str]] = {}
    for login in logins:
        kinds.setdefault(tuple(_lines(login)), []).append(login.name)
    for lines, names in kinds.items():
        yield [f"Host {' '.join(names)}", *(f"    {line}" for line in lines)]
    members = [login.name for login in logins if not login.keys]
    yield [f"Host {' '.join(members)}", *(f"    {line}" for line in _known("@cert-authority %H", authorities))]


def _lines(login: Login) -> Iterator[str]:
    if login.address:
        yield f"HostName {login.address}"
        # The machine's certificate contains its name in the cluster.
        yield f"HostKeyAlias {login.name}"
    if login.port != DEFAULT_PORT:
        yield f"Port {login.port}"
    yield f"User {login.user}"
    if login.identity:
        yield f'IdentityFile "{login.identity}"'
    if login.jump:
        yield f"ProxyJump {login.jump}"
    if login.keys:
        yield from _known("%H", login.keys)


def _known(prefix: str, keys: Sequence[str]) -> Iterator[str]:
    """Yield the lines with which ssh knows these keys alone, and asks no question.

    ssh takes the known hosts from a program, so one file is enough. It expands %H, the name that it looks up.
    """
    yield "StrictHostKeyChecking yes"
    words = [word for key in keys for word in (*prefix.split(), *key.split()[:2])]
    line = " ".join(["%%s"] * (len(words) // len(keys)))
    yield f'KnownHostsCommand /usr/bin/printf "{line}\\n" {" ".join(words)}'
