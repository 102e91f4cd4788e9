"""The proof of a network: the head node has two machines transfer 1 MiB each way, and the same by RDMA.

Machines accept requests only from the head node's tailnet address with a munge credential of its root. They connect
only to addresses of other machines and to the ports of the proof. Every machine answers with the command `fabric`.
A machine sends the token only to a listener that has shown that it listens for this proof.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import ipaddress
import json
import os
import re
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError
from typing import Annotated, Any

from components.roles.network.fabric.networks import (
    MOST_AT_ONCE,
    PORT,
    TAILNET_RANGE,
    FabricError,
    Thing,
    gid_index,
    pair_ports,
)
from components.settings.network_names import DEVICE, INTERFACE
from components.validation.preflight.neighbour import BYTES, give_back, take, there_and_back
from components.validation.untrusted import read

# Ports at which a proof listens. They are above those that the kernel assigns to programs.
PORTS = range(61000, 62000)
CONNECT_SECONDS, CARRY_SECONDS, LISTEN_SECONDS = 3.0, 10.0, 40.0
TOKEN_CHARACTERS = GREETING_CHARACTERS = 64


def bind_to_interface(connection: socket.socket, name: str) -> None:
    """Bind a socket to an interface, independently of the routes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode())


def greeting(token: str) -> bytes:
    """Return the first bytes of a listener, which only a peer with the token can recognise."""
    return hashlib.sha256(b"tailrack fabric " + token.encode()).hexdigest().encode()


def pattern(token: str) -> bytes:
    """Return the bytes to transfer. They follow from the token, so no other service's bytes match."""
    return (token.encode() * (BYTES // len(token) + 1))[:BYTES]


class Listener:
    """A listener that receives 1 MiB on each of some interfaces and sends it back."""

    def __init__(self, token: str, interfaces: Sequence[Sequence[str]], devices: Sequence[Sequence[Any]]) -> None:
        self.token = token
        self.listeners: list[socket.socket] = []
        self.ports: list[int] = []
        for name, address in interfaces:
            listener = socket.socket()
            self.listeners.append(listener)
            try:
                bind_to_interface(listener, name)
                self.ports.append(bind_free_port(listener, address))
                listener.listen()
            except OSError:
                self.ports.append(0)  # this address is gone
        self.rdma_ports = free_ports(len(devices))
        self.rdma = [
            pingpong(device, port, listener) for (device, port), listener in zip(devices, self.rdma_ports, strict=True)
        ]

    def serve(self, request: Any) -> None:
        """Serve until the requesting connection closes or the time limit ends."""
        deadline = time.monotonic() + LISTEN_SECONDS
        open_listeners = [listener for listener, port in zip(self.listeners, self.ports, strict=True) if port]
        while (seconds_left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([request, *open_listeners], [], [], seconds_left)
            if request in ready:
                return
            for listener in ready:
                threading.Thread(target=self._echo, args=(listener.accept()[0],), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + CARRY_SECONDS
        with connection, contextlib.suppress(OSError):
            connection.sendall(greeting(self.token))
            if secrets.compare_digest(take(connection, TOKEN_CHARACTERS, deadline), self.token.encode()):
                give_back(connection, deadline)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self.listeners:
            listener.close()
        for process in self.rdma:
            if process:
                process.kill()


def carry(token: str, name: str, address: str, peer: str, port: int) -> bool:
    """Return whether 1 MiB went from an interface to an address and came back."""
    deadline = time.monotonic() + CARRY_SECONDS
    sent = pattern(token)
    try:
        with socket.socket() as connection:
            bind_to_interface(connection, name)
            connection.bind((address, 0))
            connection.settimeout(CONNECT_SECONDS)
            connection.connect((peer, port))
            if not secrets.compare_digest(take(connection, GREETING_CHARACTERS, deadline), greeting(token)):
                return False
            connection.sendall(token.encode())
            return there_and_back(connection, sent, deadline) == sent
    except OSError:
        return False


def connect(token: str, pairs: Sequence[Sequence[Any]], server: str, devices: Sequence[Sequence[Any]]) -> Thing:
    """Return which pairs (interface, address, peer's address, port) and RDMA devices carried 1 MiB."""
    carried = run_parallel(lambda pair: carry(token, *pair), pairs)
    return {"carried": carried, "rdma": run_parallel(lambda device: rdma_carry(server, *device), devices)}


def run_parallel(work: Callable[[Sequence[Any]], bool], items: Sequence[Sequence[Any]]) -> list[bool]:
    """Do work for all items at the same time and return the results."""
    with ThreadPoolExecutor(max(len(items), 1)) as pool:
        return [*pool.map(work, items)]


def bind_free_port(listener: socket.socket, address: str) -> int:
    """Bind a socket to an address and a free port of the proof; raise OSError if none is free."""
    first = secrets.randbelow(len(PORTS))
    ports: list[int] = [*PORTS[first:], *PORTS[:first]]
    for port in ports:
        try:
            listener.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
    raise OSError(errno.EADDRINUSE, "no port of the proof is free")


def free_ports(count: int) -> list[int]:
    """Return different free ports of the proof."""
    with contextlib.ExitStack() as listeners:
        return [bind_free_port(listeners.enter_context(socket.socket()), "") for _ in range(count)]


def pingpong(device: str, port: int, tcp_port: int, server: str = "") -> subprocess.Popen[bytes] | None:
    """Start ibverbs-utils' program that sends 1 MiB messages back and forth by RDMA; None if it is not installed."""
    index = gid_index(device, port)
    options = ["-d", device, "-i", str(port), "-s", str(BYTES), "-n", "4", "-p", str(tcp_port)]
    options += [] if index is None else ["-g", str(index)]
    command = ["ibv_rc_pingpong", *options, *([server] if server else [])]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return None


def rdma_carry(server: str, device: str, port: int, tcp_port: int) -> bool:
    """Return whether 4 MiB went to the server and back by RDMA."""
    process = pingpong(device, port, tcp_port, server)
    if process is None:
        return False
    try:
        return process.wait(CARRY_SECONDS) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        return False


LINE_LIMIT = 64 * 1024
Interface = Annotated[str, INTERFACE]
Device = Annotated[str, DEVICE]
Nonce = Annotated[str, "[0-9a-f]{32}"]
Token = Annotated[str, f"[0-9a-f]{{{TOKEN_CHARACTERS}}}"]
# Exceptions from reading a missing or malformed answer.
BAD_ANSWER = (OSError, ValueError, KeyError, TypeError)
USAGE = """\
fabric serve NODE HEAD   answer one request of the head node's root on stdin, a connection from the address in the
                         file HEAD (tailrack-fabric.socket)
"""


class SilentError(Exception):
    """A neighbour gave no valid answer. This proves nothing, so another neighbour is asked."""


def seal(value: Thing) -> str:
    """Return a value as a munge credential, which proves its creator and can only be decoded in the cluster."""
    done = subprocess.run(["munge"], input=json.dumps(value), capture_output=True, text=True, check=False)
    if done.returncode:
        raise FabricError(f"munge does not work here: {done.stderr.strip()}")
    return done.stdout.strip()


def unseal(credential: str) -> Thing:
    """Return the value of a fresh credential that root of the cluster created; raise FabricError for any other."""
    done = subprocess.run(["unmunge"], input=credential, capture_output=True, text=True, check=False)
    header, _, text = done.stdout.partition("\n\n")
    if done.returncode or not re.search(r"^UID:\s+\S+ \(0\)$", header, re.MULTILINE):
        raise FabricError("the credential is not from root of the cluster")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FabricError("the credential's content is malformed")
    return value


def check_peer(connection: socket.socket, head: str) -> None:
    """Raise FabricError unless the peer has the head node's tailnet address, which no other machine can have."""
    peer = connection.getpeername()[0]
    if peer != head:
        raise FabricError(f"a request came from {peer}, which is not the head node")


@dataclass(frozen=True)
class Listen:
    """A request to listen at interfaces, by name and address, and at RDMA ports, by device and port."""

    do: Annotated[str, "listen"]
    nonce: Nonce
    token: Token
    interfaces: tuple[tuple[Interface, str], ...]
    rdma: tuple[tuple[Device, int], ...]

    def is_valid(self) -> bool:
        """Return whether a proof needs it. Raises ValueError too."""
        addresses = all(is_address(address) for _, address in self.interfaces)
        return addresses and all(0 < port < 256 for _, port in self.rdma)


@dataclass(frozen=True)
class Connect:
    """A request to send data.

    pairs    interface, its address, the peer's address and port
    rdma     device, its port, the peer's port
    server   the peer's address on the tailnet
    """

    do: Annotated[str, "connect"]
    nonce: Nonce
    token: Token
    pairs: tuple[tuple[Interface, str, str, int], ...]
    rdma: tuple[tuple[Device, int, int], ...]
    server: str

    def is_valid(self) -> bool:
        """Return whether a proof needs it. Raises ValueError too."""
        networks = all(is_address(own) and is_peer(peer) and port in PORTS for _, own, peer, port in self.pairs)
        devices = all(0 < number < 256 and port in PORTS for _, number, port in self.rdma)
        return networks and devices and is_tailnet(self.server)


def serve(node: str, request_stream: Any, answer_stream: Any) -> None:
    """Answer one request to this node. A listener runs until the requesting connection closes."""

    def reply(answer: Thing) -> None:
        answer_stream.write(seal({**answer, "nonce": request.nonce}) + "\n")
        answer_stream.flush()

    request = check(unseal(request_stream.readline(LINE_LIMIT)), node)
    if isinstance(request, Listen):
        with Listener(request.token, request.interfaces, request.rdma) as listener:
            reply({"ports": listener.ports, "rdma_ports": listener.rdma_ports})
            listener.serve(request_stream)
    else:
        reply(connect(request.token, request.pairs, request.server, request.rdma))


def check(data: Thing, node: str) -> Listen | Connect:
    """Return a request. Raises FabricError for one that is not for this node, or that a proof does not need."""
    if data.get("to") != node:
        raise FabricError("the request is for another machine")
    if any(isinstance(value, list) and len(value) > MOST_AT_ONCE for value in data.values()):
        raise FabricError(f"the request has more than {MOST_AT_ONCE} entries")
    try:
        request = read(Listen, data) if data.get("do") == "listen" else read(Connect, data)
        if not request.is_valid():
            raise ValueError("an address or a port is not one of a proof")
    except ValueError as error:
        raise FabricError(f"the request has an invalid value: {error}") from None
    return request


def is_address(value: str) -> bool:
    return str(ipaddress.IPv4Address(value)) == value


def is_peer(value: str) -> bool:
    """Return whether an address can be another machine's on a site's network."""
    ip = ipaddress.IPv4Address(value)
    special = ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_reserved or ip.packed[0] == 0
    return is_address(value) and not special and ip not in TAILNET_RANGE and not is_local(value)


def is_local(address: str) -> bool:
    """Return whether an address is this machine's: only then can a socket bind to it."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
        return True


def is_tailnet(value: str) -> bool:
    """Return whether an address is the tailnet's, at which the peer's RDMA program listens."""
    return is_address(value) and ipaddress.IPv4Address(value) in TAILNET_RANGE


class Request:
    """A request to a machine. Raises OSError without an answer, and FabricError for an answer that is not root's."""

    def __init__(self, node: str, address: str, request: Thing) -> None:
        self.nonce = secrets.token_hex(16)
        self.connection = socket.create_connection((address, PORT), CONNECT_SECONDS)
        self.connection.settimeout(LISTEN_SECONDS)
        self.connection.sendall((seal({**request, "to": node, "nonce": self.nonce}) + "\n").encode())

    def answer(self) -> Thing:
        deadline, line = time.monotonic() + LISTEN_SECONDS, b""
        while not line.endswith(b"\n"):
            # The limit is for the whole answer: a slow sender must not delay a joining node.
            self.connection.settimeout(max(deadline - time.monotonic(), 1e-3))
            if not (chunk := self.connection.recv(LINE_LIMIT)):
                raise ConnectionError("it closed the connection")
            line += chunk
            if len(line) > LINE_LIMIT:
                raise FabricError("the answer is too long")
        value = unseal(line.decode("ascii"))
        if value.get("nonce") != self.nonce:
            raise FabricError("the answer is to another request")
        return value

    def __enter__(self) -> Request:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def may_share_network(mine: Thing, theirs: Thing, setting: str) -> bool:
    """Return whether two interfaces may share a network: by their addresses, or if the provider routes between them."""
    local, remote = ipaddress.IPv4Interface(mine["address"]), ipaddress.IPv4Interface(theirs["address"])
    if local.ip == remote.ip:
        return False
    routed = mine["default_route"] and theirs["default_route"]
    return setting != "auto" or local.network == remote.network or routed


def prove(mine: Thing, theirs: Thing) -> tuple[list[tuple[Thing, Thing]], list[tuple[Thing, Thing]]]:
    """Return pairs of interfaces, and of RDMA ports, that carried 1 MiB from a node to a neighbour and back.

    Raises SilentError if the neighbour does not answer, FabricError if the node itself does not.
    """
    token = secrets.token_hex(TOKEN_CHARACTERS // 2)
    ports = pair_ports(mine["rdma"], theirs["rdma"])
    rdma_listeners = [[remote["device"], remote["port"]] for _, remote in ports]
    interfaces = [[interface["name"], host_of(interface)] for interface in theirs["interfaces"]]
    listen = {"do": "listen", "token": token, "interfaces": interfaces, "rdma": rdma_listeners}
    with contextlib.ExitStack() as stack:
        try:
            answer = stack.enter_context(Request(theirs["node"], theirs["address"], listen)).answer()
            listening = [*zip(theirs["interfaces"], map(port_of, answer["ports"]), strict=True)]
            rdma_ports = map(port_of, answer["rdma_ports"])
            rdma = [[local["device"], local["port"], port] for (local, _), port in zip(ports, rdma_ports, strict=True)]
        except (*BAD_ANSWER, FabricError) as error:
            raise SilentError(f"{theirs['node']} at {theirs['address']}: {error}") from None
        pairs = [
            (local, remote, port)
            for local in mine["interfaces"]
            for remote, port in listening
            if port and may_share_network(local, remote, mine["setting"])
        ]
        tried = [[local["name"], host_of(local), host_of(remote), port] for local, remote, port in pairs]
        connect_request = {"do": "connect", "token": token, "pairs": tried, "server": theirs["address"], "rdma": rdma}
        try:
            result = stack.enter_context(Request(mine["node"], mine["address"], connect_request)).answer()
            carried = [pair[:2] for pair, yes in zip(pairs, result["carried"], strict=True) if yes is True]
            return carried, [pair for pair, yes in zip(ports, result["rdma"], strict=True) if yes is True]
        except (*BAD_ANSWER, FabricError) as error:
            message = f"{mine['node']} does not answer at {mine['address']}:{PORT}, so its fabric cannot be proven"
            raise FabricError(f"{message}: {error}") from None


def port_of(value: Any) -> int:
    """Return a port of an answer, 0 without a listener; raise ValueError for others, because the node gets them."""
    if type(value) is not int or value not in (0, *PORTS):
        raise ValueError("the answer has a port that is not one of the proof's")
    return int(value)


def host_of(interface: Thing) -> str:
    """Return the address of an interface, without its prefix length."""
    return str(interface["address"]).partition("/")[0]


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return 1 after one line with the error if it fails."""
    match arguments:
        case ["serve", node, head]:
            try:
                with socket.socket(fileno=os.dup(sys.stdin.fileno())) as connection:
                    check_peer(connection, Path(head).read_text(encoding="utf-8").strip())
                serve(node, sys.stdin, sys.stdout)
            except (FabricError, OSError, CalledProcessError) as error:
                # A peer on the network gets no error message.
                sys.stderr.write(f"{error}\n")
                return 1
            return 0
    sys.stderr.write(USAGE)
    return 2
