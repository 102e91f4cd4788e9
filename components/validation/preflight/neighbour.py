"""Send data to the next node of a ring over the cluster's own path, and compare the clocks.

Every node sends 1 MiB to the next node and gets it back. If the nodes share a fabric, the same transfer runs over it,
to the address in the neighbour's answer.

    client -> server   one line of JSON: {"tailrack": job, "from": node, "to": intended node, "last": whether this
                       is the last path to test}
    server -> client   one line of JSON: {"to": node, "time": Unix seconds, "fabric": address or "", "port": of its
                       server there}
    client -> server   1 MiB
    server -> client   the same
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from components.validation.preflight.findings import Finding, finding
from components.validation.transfer import BYTES, STALL_SECONDS, give_back, there_and_back

TRANSFER, CLOCK = "MTU", "clock"
# Inside Slurm's port range for srun, which is open in the cluster (role slurm).
FIRST_PORT, PORTS, TRIED_PORTS = 60001, 999, 6
RANGE = f"{FIRST_PORT}-{FIRST_PORT + PORTS - 1}"
# The first packet between two nodes that never communicated was seen to take 17 s.
MEET_SECONDS = 30.0
# Short, so that a path that is not up yet does not use all the time on the first ports.
CONNECT_SECONDS = 2.0
LAST_SECONDS = 60.0
MOST_LINE = 512
CLOCK_WARNING, CLOCK_ERROR = 1.0, 10.0


@dataclass(frozen=True)
class Peer:
    name: str
    address: str


def ports_of(job: str) -> list[int]:
    """Return the ports of a job's preflight: the same on all its nodes, and others for most other jobs."""
    start = random.Random(job).randrange(PORTS)  # noqa: S311  not a secret
    return [FIRST_PORT + (start + number * 37) % PORTS for number in range(TRIED_PORTS)]


def _line(connection: socket.socket) -> dict[str, object]:
    """Read one line of JSON. Raises OSError for anything else."""
    text = b""
    while not text.endswith(b"\n") and len(text) < MOST_LINE:
        more = connection.recv(1)
        if not more:
            break
        text += more
    try:
        message = json.loads(text)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise ConnectionError("no line of preflight's")
    return message


def _finite(value: object) -> float:
    """Return a plausible clock value. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise ValueError
    return float(value)


def _send_line(connection: socket.socket, **values: object) -> None:
    connection.sendall(json.dumps(values).encode() + b"\n")


class Server(threading.Thread):
    """A server for the previous node of the ring, once for each path that it tests, until `stop`."""

    def __init__(self, node: str, job: str, fabric: str) -> None:
        super().__init__(daemon=True)
        self.node, self.job, self.fabric = node, job, fabric
        self.served = threading.Event()
        self._end = threading.Event()
        self._listener: socket.socket | None = None
        self._on_fabric: socket.socket | None = None
        if fabric:
            # On a free port, as jobs use: the cluster's own ports, srun's among them, are closed there (role firewall).
            with contextlib.suppress(OSError):
                self._on_fabric = socket.create_server((fabric, 0))
                self._on_fabric.settimeout(0.2)
                threading.Thread(target=self._take, args=(self._on_fabric,), daemon=True).start()
        for port in ports_of(job):
            with contextlib.suppress(OSError):
                self._listener = socket.create_server(("", port))
                self._listener.settimeout(0.2)
                break

    @property
    def listens(self) -> bool:
        return self._listener is not None

    def run(self) -> None:
        if self._listener is not None:
            self._take(self._listener)

    def _take(self, listener: socket.socket) -> None:
        with listener:
            while not self._end.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.settimeout(STALL_SECONDS)
            request = _line(connection)
            # A client that expects another node at this port must not count as the expected one.
            if request.get("tailrack") != self.job or request.get("to") != self.node:
                return
            port = self._on_fabric.getsockname()[1] if self._on_fabric else 0
            _send_line(connection, to=self.node, time=time.time(), fabric=self.fabric, port=port)
            give_back(connection, time.monotonic() + LAST_SECONDS)
            if request.get("last"):
                self.served.set()

    def stop(self) -> None:
        self._end.set()
        if self._listener is not None:
            self.join(1)


@dataclass(frozen=True)
class Neighbour:
    """A neighbour's answer: how far its clock is ahead, plus or minus `within`, and its place on the fabric."""

    ahead: float
    within: float
    fabric: str
    port: int


def connect(
    peer: Peer, address: str, ports: Sequence[int], job: str, node: str, limit: float, *, last: bool
) -> tuple[socket.socket, Neighbour] | None:
    """Connect to a neighbour's server; None if none of the ports answers as that node in time."""
    end = time.monotonic() + limit
    while True:
        for port in ports:
            with contextlib.suppress(OSError, ValueError):
                connection = socket.create_connection((address, port), timeout=min(limit, CONNECT_SECONDS))
                try:
                    connection.settimeout(STALL_SECONDS)
                    begin = time.time()
                    _send_line(connection, tailrack=job, last=last, to=peer.name, **{"from": node})
                    answer = _line(connection)
                    received = time.time()
                    if answer.get("to") == peer.name:
                        their_time = _finite(answer.get("time"))
                        fabric, their_port = str(answer.get("fabric", "")), answer.get("port")
                        their_port = their_port if isinstance(their_port, int) and 0 < their_port < 65536 else 0
                        return connection, Neighbour(
                            their_time - (begin + received) / 2, (received - begin) / 2, fabric, their_port
                        )
                except (OSError, ValueError):
                    connection.close()
                    raise
                connection.close()
        if time.monotonic() >= end:
            return None
        time.sleep(0.05)


def check_path(peer: Peer, path: str, connection: socket.socket) -> Iterator[Finding]:
    """Send 1 MiB there and back over a path (the name of an interface)."""
    begin = time.monotonic()
    with connection:
        received = len(there_and_back(connection, bytes(BYTES), begin + LAST_SECONDS))
    if received == BYTES:
        seconds = time.monotonic() - begin
        yield finding("info", TRANSFER, f"1 MiB to {peer.name} and back over {path} in {seconds:.2f} s")
        return
    advice = (
        "lower the tailnet's MTU (TS_DEBUG_MTU=1200 in /etc/default/tailscaled)"
        if path == "tailscale0"
        else f"lower the MTU of {path}"
    )
    yield finding(
        "error", TRANSFER,
        f"{peer.name} answers over {path}, but 1 MiB does not get through: {received} of {BYTES} bytes came back",
        f"an MTU on the path is smaller than both ends assume: allow ICMP 'fragmentation needed', or {advice}; "
        f"'ping -M do -s 1252 {peer.address}' shows which sizes pass",
    )  # fmt: skip


def check_clock(peer: Peer, neighbour: Neighbour) -> Iterator[Finding]:
    """Check how far the clocks differ, as precisely as the round trip allows."""
    difference = abs(neighbour.ahead) - neighbour.within
    if difference < CLOCK_WARNING:
        return
    severity = "error" if difference >= CLOCK_ERROR else "warning"
    yield finding(
        severity, CLOCK, f"the clock of {peer.name} differs by {neighbour.ahead:+.1f} s from this node's",
        "set both clocks (timedatectl; chronyc makestep): munge rejects a difference of five minutes",
    )  # fmt: skip


def check_neighbour(peer: Peer, job: str, node: str, fabric: str) -> Iterator[Finding]:
    """Check the path to the next node; `fabric` is the interface that both have, or empty."""
    answer = connect(peer, peer.address, ports_of(job), job, node, MEET_SECONDS, last=not fabric)
    if answer is None:
        yield finding(
            "error", TRANSFER,
            f"{peer.name} ({peer.address}) does not answer on the tailnet within {MEET_SECONDS:.0f} s",
            f"run 'tailscale ping {peer.name}' on this node; ports {RANGE} must be open inside the tailnet",
        )  # fmt: skip
        return
    connection, neighbour = answer
    yield from check_clock(peer, neighbour)
    yield from check_path(peer, "tailscale0", connection)
    if not fabric:
        return
    on_fabric = bool(neighbour.fabric and neighbour.port)
    result = (
        connect(peer, neighbour.fabric, [neighbour.port], job, node, MEET_SECONDS / 2, last=True) if on_fabric else None
    )
    if result is None:
        yield finding(
            "warning", TRANSFER,
            f"{peer.name} does not answer over {fabric} ({neighbour.fabric or 'no address there'})",
            f"see 'ip addr show {fabric}' on both nodes; a firewall must not block the ports of jobs (32768-60999)",
        )  # fmt: skip
        return
    yield from check_path(peer, fabric, result[0])
