"""The transfer in a proof: 1 MiB from an interface to another machine's interface and back, and the same by RDMA.

A machine sends the token only to a listener that has shown that it listens for this proof.
"""

import contextlib
import errno
import hashlib
import secrets
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from components.roles.fabric.networks import Thing, gid_index
from components.validation.transfer import BYTES, give_back, take, there_and_back

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

    def __enter__(self) -> "Listener":
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


def pingpong(device: str, port: int, tcp_port: int, server: str = "") -> "subprocess.Popen[bytes] | None":
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
