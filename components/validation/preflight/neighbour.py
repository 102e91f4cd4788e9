"""Send data to the next node of a ring over the cluster's own path, and compare the clocks.

Every node sends 1 MiB to the next node and gets it back: a path with a smaller MTU than its ends assume drops longer
packets without an error, and pings pass. If the nodes share a fabric, the same transfer runs over it, to the address in
the neighbour's answer. Then perftest writes for some seconds from each RDMA port to the same port of
the next node. The previous node does so at the same time, because a port carries its full speed in both directions.
perftest's servers listen at all addresses, because not every release can bind them to one. Their TCP ports are in
srun's range, which the firewall opens on the tailnet and on loopback only, and without that connection no RDMA reaches
them. A server ends after its first client or with the preflight.

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
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from components.validation.preflight.adapters import Port
from components.validation.preflight.findings import Finding, finding, unjudged
from components.validation.this_node import output_of
from components.validation.untrusted import read

TRANSFER, CLOCK, SPEED = "MTU", "clock", "RDMA speed"
PERFTEST = "ib_write_bw"
SPEED_SECONDS, SPEED_TRIES = 2, 3
# Well-set ports carry 92 % (RoCE with short frames) to 98 % of their speed.
LEAST_SPEED = 0.8
# The columns are bytes, iterations, peak and average, in Gb/s.
_AVERAGE = re.compile(r"^ *\d+ +\d+ +\d+\.\d+ +(\d{1,6}\.\d{1,6})\s", re.ASCII | re.MULTILINE)
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
BYTES = 2**20
# Limit without any progress.
STALL_SECONDS = 10.0


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


def _send_line(connection: socket.socket, **values: object) -> None:
    connection.sendall(json.dumps(values).encode() + b"\n")


class Server:
    """A server for the previous node of the ring, once for each path that it tests, until `stop`."""

    def __init__(self, node: str, job: str, fabric: str) -> None:
        self.node, self.job, self.fabric = node, job, fabric
        self.served, self._end = threading.Event(), threading.Event()
        # On a free port, as jobs use: the cluster's own ports, srun's among them, are closed there (role firewall).
        self._on_fabric = _listen(fabric, 0) if fabric else None
        self._listener = next(filter(None, (_listen("", port) for port in ports_of(job))), None)
        for listener in filter(None, (self._on_fabric, self._listener)):
            threading.Thread(target=self._take, args=(listener,), daemon=True).start()

    @property
    def listens(self) -> bool:
        return self._listener is not None

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


def _listen(address: str, port: int) -> socket.socket | None:
    with contextlib.suppress(OSError):
        listener = socket.create_server((address, port))
        listener.settimeout(0.2)
        return listener
    return None


@dataclass(frozen=True)
class Answer:
    """A line of a server."""

    to: str
    time: float
    fabric: str = ""
    port: Annotated[int, range(65536)] = 0


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
                    answer = read(Answer, _line(connection))
                    received = time.time()
                    if answer.to == peer.name:
                        ahead, within = answer.time - (begin + received) / 2, (received - begin) / 2
                        return connection, Neighbour(ahead, within, answer.fabric, answer.port)
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
    seen = f"the clock of {peer.name} differs by {neighbour.ahead:+.1f} s from this node's"
    remedy = "set both clocks (timedatectl; chronyc makestep): munge rejects a difference of five minutes"
    yield finding(severity, CLOCK, seen, remedy)


def check_neighbour(peer: Peer, job: str, node: str, fabric: str) -> Iterator[Finding]:
    """Check the path to the next node; `fabric` is the interface that both have, or empty."""
    answer = connect(peer, peer.address, ports_of(job), job, node, MEET_SECONDS, last=not fabric)
    if answer is None:
        seen = f"{peer.name} ({peer.address}) does not answer on the tailnet within {MEET_SECONDS:.0f} s"
        remedy = f"run 'tailscale ping {peer.name}' on this node; ports {RANGE} must be open inside the tailnet"
        yield finding("error", TRANSFER, seen, remedy)
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
        seen = f"{peer.name} does not answer over {fabric} ({neighbour.fabric or 'no address there'})"
        remedy = f"see 'ip addr show {fabric}' on both nodes; a firewall must not block the ports of jobs (32768-60999)"
        yield finding("warning", TRANSFER, seen, remedy)
        return
    yield from check_path(peer, fabric, result[0])


def speed_ports(ports: Iterable[Port]) -> list[tuple[int, Port]]:
    """Return the ports to measure, with their places on the machine, which are the same on machines of one model."""
    placed = enumerate(sorted(ports, key=lambda port: (port.bus, port.number)))
    return [(place, port) for place, port in placed if port.active and port.driver != "efa"]


def _perftest(job: str, place: int, port: Port, *server: str) -> list[str]:
    """Return the command of a client, or without a server's address of the server."""
    tcp_port = FIRST_PORT + (ports_of(job)[0] - FIRST_PORT + PORTS // 2 + place) % PORTS
    device = ["-d", port.device, "-i", str(port.number), "-p", str(tcp_port)]
    return [PERFTEST, *device, "-D", str(SPEED_SECONDS), "-q", "4", "-F", "--report_gbits", *server]


def serve_speed(job: str, ports: Sequence[tuple[int, Port]]) -> list[subprocess.Popen[bytes]]:
    """Start a server at each port. It ends after its client, the previous node of the ring."""
    silent, servers = subprocess.DEVNULL, []
    with contextlib.suppress(OSError):
        for port in ports:
            servers.append(subprocess.Popen(_perftest(job, *port), stdin=silent, stdout=silent, stderr=silent))
    return servers


def end_servers(servers: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    """Wait for servers, and kill those that are left."""
    end = time.monotonic() + seconds
    for server in servers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(max(end - time.monotonic(), 0))
        server.kill()
        server.wait()


def check_speed(peer: Peer, job: str, ports: Sequence[tuple[int, Port]]) -> Iterator[Finding]:
    """Compare the bandwidth of RDMA writes to the next node with the speed of each port."""
    if ports and not shutil.which(PERFTEST):
        yield unjudged(SPEED, "perftest is not installed", "install the package perftest on the site's nodes")
        return
    for place, port in ports:
        speed = _measure(_perftest(job, place, port, peer.address))
        by_hand = f"run '{PERFTEST} -d {port.device} --report_gbits' on {peer.name}, and here with its address"
        if speed is None or not port.rate:
            yield unjudged(SPEED, f"{port} to {peer.name} could not be measured", f"{by_hand} at the end")
            continue
        seen = f"{port} writes {speed:.1f} of {port.rate:g} Gb/s to {peer.name}"
        if speed >= LEAST_SPEED * port.rate:
            yield finding("info", SPEED, seen)
        else:
            remedy = "check 'lspci -vv' of the adapter (LnkSta), its cable, and for RoCE the MTU and the switch"
            yield finding("warning", SPEED, seen, f"{remedy}; to repeat, {by_hand}")


def _measure(command: Sequence[str]) -> float | None:
    for _ in range(SPEED_TRIES):
        averages = _AVERAGE.findall(output_of(*command, seconds=SPEED_SECONDS + 20) or "")
        if averages:
            return float(averages[-1])
        time.sleep(1)  # the neighbour's server is starting
    return None


def there_and_back(connection: socket.socket, data: bytes, deadline: float) -> bytes:
    """Send data and return what came back, until a time of the monotonic clock."""
    rest = memoryview(data)
    with contextlib.suppress(OSError):
        while rest:
            _wait_until(connection, deadline)
            rest = rest[connection.send(rest[: 2**16]) :]
    return take(connection, len(data), deadline)


def give_back(connection: socket.socket, deadline: float) -> None:
    """Receive 1 MiB and send it back; send nothing if less arrives. Raises OSError if it cannot be sent."""
    if len(data := take(connection, BYTES, deadline)) == BYTES:
        connection.sendall(data)


def take(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Return `count` bytes, or those that arrived before the transfer stalled."""
    data = bytearray()
    with contextlib.suppress(OSError):
        while len(data) < count:
            _wait_until(connection, deadline)
            if not (more := connection.recv(min(count - len(data), 2**16))):
                break
            data += more
    return bytes(data)


def _wait_until(connection: socket.socket, deadline: float) -> None:
    connection.settimeout(max(min(deadline - time.monotonic(), STALL_SECONDS), 1e-3))
