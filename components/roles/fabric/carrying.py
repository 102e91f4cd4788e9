"""What is carried in a proof: 1 MiB from an interface to another machine's and back, and the same by RDMA.

A machine says nothing to who does not show first that it listens for this very proof.
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
from functools import partial
from typing import Any

from components.roles.fabric.networks import Thing, gid_index
from components.validation.transfer import BYTES, give_back, take, there_and_back

# Where a proof listens. The kernel gives none of them to a program that asks for any port.
PORTS = range(61000, 62000)
CONNECT_SECONDS, CARRY_SECONDS, LISTEN_SECONDS = 3.0, 10.0, 40.0
TOKEN_CHARACTERS = GREETING_CHARACTERS = 64


def on_interface(connection: socket.socket, name: str) -> None:
    """Keep a socket on an interface, whatever the routes say."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode())


def greeting(token: str) -> bytes:
    """What a listener says first: to who knows the token, that this is the proof, and to others nothing."""
    return hashlib.sha256(b"tailrack fabric " + token.encode()).hexdigest().encode()


def pattern(token: str) -> bytes:
    """What is carried: bytes that follow from the token, so that nobody else's can pass for them."""
    return (token.encode() * (BYTES // len(token) + 1))[:BYTES]


class Listener:
    """Takes 1 MiB on each of some interfaces and sends it back."""

    def __init__(self, token: str, wanted: Sequence[Sequence[str]], devices: Sequence[Sequence[Any]]) -> None:
        self.token = token
        self.doors: list[socket.socket] = []
        self.ports: list[int] = []
        for name, address in wanted:
            door = socket.socket()
            self.doors.append(door)
            try:
                on_interface(door, name)
                self.ports.append(bound(door, address))
                door.listen()
            except OSError:
                self.ports.append(0)  # this address is not here any more
        self.rdma_ports = free_ports(len(devices))
        self.rdma = [
            pingpong(device, port, door) for (device, port), door in zip(devices, self.rdma_ports, strict=True)
        ]

    def serve(self, asking: Any) -> None:
        """Until the one who asked is done, or has been away for too long."""
        deadline = time.monotonic() + LISTEN_SECONDS
        open_doors = [door for door, port in zip(self.doors, self.ports, strict=True) if port]
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([asking, *open_doors], [], [], left)
            if asking in ready:
                return
            for door in ready:
                threading.Thread(target=self._echo, args=(door.accept()[0],), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + CARRY_SECONDS
        with connection, contextlib.suppress(OSError):
            connection.sendall(greeting(self.token))
            if secrets.compare_digest(take(connection, TOKEN_CHARACTERS, deadline), self.token.encode()):
                give_back(connection, deadline)

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_: object) -> None:
        for door in self.doors:
            door.close()
        for process in self.rdma:
            if process:
                process.kill()


def carry(token: str, name: str, address: str, to: str, port: int) -> bool:
    """Whether 1 MiB went from an interface to an address and came back."""
    deadline = time.monotonic() + CARRY_SECONDS
    sent = pattern(token)
    try:
        with socket.socket() as connection:
            on_interface(connection, name)
            connection.bind((address, 0))
            connection.settimeout(CONNECT_SECONDS)
            connection.connect((to, port))
            if not secrets.compare_digest(take(connection, GREETING_CHARACTERS, deadline), greeting(token)):
                return False
            connection.sendall(token.encode())
            return there_and_back(connection, sent, deadline) == sent
    except OSError:
        return False


def connect(token: str, pairs: Sequence[Sequence[Any]], server: str, devices: Sequence[Sequence[Any]]) -> Thing:
    """Which pairs (own interface and address, the other's address and port) and RDMA devices carried 1 MiB."""
    carried = side_by_side([partial(carry, token, *pair) for pair in pairs])
    return {"carried": carried, "rdma": side_by_side([partial(rdma_carry, server, *each) for each in devices])}


def side_by_side(tasks: Sequence[Callable[[], bool]]) -> list[bool]:
    """What tasks return that run at the same time."""
    results = [False] * len(tasks)

    def run(index: int) -> None:
        results[index] = tasks[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(tasks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def bound(door: socket.socket, address: str) -> int:
    """Bind a socket to an address and one of the proof's ports that is free there; OSError where there is none."""
    first = secrets.randbelow(len(PORTS))
    ports: list[int] = [*PORTS[first:], *PORTS[:first]]
    for port in ports:
        try:
            door.bind((address, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
    raise OSError(errno.EADDRINUSE, "every port of the proof is taken")


def free_ports(count: int) -> list[int]:
    """Ports of the proof, each another one, at which nobody listens."""
    with contextlib.ExitStack() as doors:
        return [bound(doors.enter_context(socket.socket()), "") for _ in range(count)]


def pingpong(device: str, port: int, tcp_port: int, server: str = "") -> "subprocess.Popen[bytes] | None":
    """ibverbs-utils' program that sends 1 MiB messages there and back by RDMA; None where it is not installed."""
    index = gid_index(device, port)
    options = ["-d", device, "-i", str(port), "-s", str(BYTES), "-n", "4", "-p", str(tcp_port)]
    options += [] if index is None else ["-g", str(index)]
    words = ["ibv_rc_pingpong", *options, *([server] if server else [])]
    try:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return None


def rdma_carry(server: str, device: str, port: int, tcp_port: int) -> bool:
    """Whether 4 MiB went there and back by RDMA."""
    process = pingpong(device, port, tcp_port, server)
    if process is None:
        return False
    try:
        return process.wait(CARRY_SECONDS) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        return False
