"""A transfer to the next node of a ring, over the path that the cluster uses, and its clock.

Every node sends 1 MiB to the next one and gets it back, so both directions are tried. Where
the nodes share a fabric, the neighbour tells its address there, and the same is sent over that one.

    client -> server   one line of JSON: {"tailrack": job, "from": node, "to": node that is meant, "last": whether
                       it is the last path that is tried}
    server -> client   one line of JSON: {"to": node, "time": seconds since 1970, "fabric": address or "",
                       "port": of the server there}
    client -> server   1 MiB
    server -> client   the same
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from components.validation.preflight.findings import Finding, finding
from components.validation.transfer import BYTES, STALL_SECONDS, give_back, there_and_back

TRANSFER, CLOCK = "MTU", "clock"
# In Slurm's range for srun, which is open inside the cluster (role slurm).
FIRST_PORT, PORTS, TRIED_PORTS = 60001, 999, 6
RANGE = f"{FIRST_PORT}-{FIRST_PORT + PORTS - 1}"
# Two nodes that have never spoken: their first packet was seen to take 17 s.
MEET_SECONDS = 30.0
# For one of the ports: a path that is not there yet must not use up the time at the first ones.
CONNECT_SECONDS = 2.0
LAST_SECONDS = 60.0
MOST_LINE = 512
CLOCK_WARNING, CLOCK_ERROR = 1.0, 10.0
_SIOCGIFADDR = 0x8915  # netdevice(7): the IPv4 address of an interface


@dataclass(frozen=True)
class Peer:
    """The next node of the ring."""

    name: str
    address: str


def interface_address(name: str) -> str:
    """The IPv4 address of an interface; empty where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def ports_of(job: str) -> list[int]:
    """The ports at which a job's preflight may listen; the same on all its nodes, and others for most other jobs."""
    start = random.Random(job).randrange(PORTS)  # noqa: S311  nothing is kept secret by it
    return [FIRST_PORT + (start + number * 37) % PORTS for number in range(TRIED_PORTS)]


def _line(connection: socket.socket) -> dict[str, object]:
    """One line of JSON. Raises OSError for anything else."""
    text = b""
    while not text.endswith(b"\n") and len(text) < MOST_LINE:
        more = connection.recv(1)
        if not more:
            break
        text += more
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise ConnectionError("no line of preflight's")
    return read


def _finite(value: object) -> float:
    """A number. Raises ValueError for anything else, and for what no clock shows."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise ValueError
    return float(value)


def _send_line(connection: socket.socket, **values: object) -> None:
    connection.sendall(json.dumps(values).encode() + b"\n")


class Server(threading.Thread):
    """Answers the node before this one, once for each path that it tries, until `stop`."""

    def __init__(self, node: str, job: str, fabric: str) -> None:
        super().__init__(daemon=True)
        self.node, self.job, self.fabric = node, job, fabric
        self.served = threading.Event()
        self._end = threading.Event()
        self._listener: socket.socket | None = None
        self._on_fabric: socket.socket | None = None
        if fabric:
            # As jobs do: the cluster's own ports, srun's among them, are closed there (role firewall).
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
            asked = _line(connection)
            # Who looks for another node at this port must not be taken for the one that this node waits for.
            if asked.get("tailrack") != self.job or asked.get("to") != self.node:
                return
            port = self._on_fabric.getsockname()[1] if self._on_fabric else 0
            _send_line(connection, to=self.node, time=time.time(), fabric=self.fabric, port=port)
            give_back(connection, time.monotonic() + LAST_SECONDS)
            if asked.get("last"):
                self.served.set()

    def stop(self) -> None:
        """Take no more."""
        self._end.set()
        if self._listener is not None:
            self.join(1)


@dataclass(frozen=True)
class Told:
    """What a neighbour said of itself: how far its clock is ahead, give or take `within`; its place on the fabric."""

    ahead: float
    within: float
    fabric: str
    port: int


def connect(
    peer: Peer, address: str, ports: Sequence[int], job: str, node: str, limit: float, *, last: bool
) -> tuple[socket.socket, Told] | None:
    """Connect to a neighbour's server; None where none of the ports answers as that, in the time there is."""
    end = time.monotonic() + limit
    while True:
        for port in ports:
            with contextlib.suppress(OSError, ValueError):
                connection = socket.create_connection((address, port), timeout=min(limit, CONNECT_SECONDS))
                try:
                    connection.settimeout(STALL_SECONDS)
                    begin = time.time()
                    _send_line(connection, tailrack=job, last=last, to=peer.name, **{"from": node})
                    said = _line(connection)
                    after = time.time()
                    if said.get("to") == peer.name:
                        theirs = _finite(said.get("time"))
                        fabric, there = str(said.get("fabric", "")), said.get("port")
                        there = there if isinstance(there, int) and 0 < there < 65536 else 0
                        return connection, Told(theirs - (begin + after) / 2, (after - begin) / 2, fabric, there)
                except (OSError, ValueError):
                    connection.close()
                    raise
                connection.close()
        if time.monotonic() >= end:
            return None
        time.sleep(0.05)


def check_path(peer: Peer, path: str, connection: socket.socket) -> Iterator[Finding]:
    """1 MiB there and back over a path (an interface's name)."""
    begin = time.monotonic()
    with connection:
        back = len(there_and_back(connection, bytes(BYTES), begin + LAST_SECONDS))
    if back == BYTES:
        seconds = time.monotonic() - begin
        yield finding("info", TRANSFER, f"1 MiB to {peer.name} and back over {path} in {seconds:.2f} s")
        return
    lower = (
        "lower the tailnet's (TS_DEBUG_MTU=1200 in /etc/default/tailscaled)"
        if path == "tailscale0"
        else f"lower that of {path}"
    )
    yield finding(
        "error", TRANSFER,
        f"{peer.name} answers over {path}, and 1 MiB does not come through: {back} of {BYTES} bytes came back",
        f"an MTU on the way is smaller than the ends believe: let ICMP 'fragmentation needed' pass, or {lower}; "
        f"'ping -M do -s 1252 {peer.address}' finds what passes",
    )  # fmt: skip


def check_clock(peer: Peer, told: Told) -> Iterator[Finding]:
    """How far apart the clocks are, as far as the way there and back lets one say."""
    apart = abs(told.ahead) - told.within
    if apart < CLOCK_WARNING:
        return
    severity = "error" if apart >= CLOCK_ERROR else "warning"
    yield finding(
        severity, CLOCK, f"the clock of {peer.name} is {told.ahead:+.1f} s from this node's",
        "set both right (timedatectl; chronyc makestep): munge refuses what is five minutes off",
    )  # fmt: skip


def check_neighbour(peer: Peer, job: str, node: str, fabric: str) -> Iterator[Finding]:
    """Everything about the way to the next node; `fabric` is the interface that both have, or empty."""
    met = connect(peer, peer.address, ports_of(job), job, node, MEET_SECONDS, last=not fabric)
    if met is None:
        yield finding(
            "error", TRANSFER, f"{peer.name} ({peer.address}) does not answer on the tailnet in {MEET_SECONDS:.0f} s",
            f"'tailscale ping {peer.name}' on this node; ports {RANGE} must be open inside the tailnet",
        )  # fmt: skip
        return
    connection, told = met
    yield from check_clock(peer, told)
    yield from check_path(peer, "tailscale0", connection)
    if not fabric:
        return
    known = bool(told.fabric and told.port)
    over = connect(peer, told.fabric, [told.port], job, node, MEET_SECONDS / 2, last=True) if known else None
    if over is None:
        yield finding(
            "warning", TRANSFER, f"{peer.name} does not answer over {fabric} ({told.fabric or 'no address there'})",
            f"see 'ip addr show {fabric}' on both, and whether a firewall closes the ports of jobs there (32768-60999)",
        )  # fmt: skip
        return
    yield from check_path(peer, fabric, over[0])
