"""Connect and authenticate a Slurm step's tasks over TCP, for tcp_ring.py.

Rank 0 listens on a port that follows from the job's number. A connection carries data only after both ends have proved,
by an HMAC over fresh random bytes, that they know the job's token: the environment variable TAILRACK_RING_TOKEN, which
only the job's user can read.
"""

import hmac
import json
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from secrets import token_bytes
from typing import Any

from components.slurm.nodes import node_names

TOKEN = "TAILRACK_RING_TOKEN"  # noqa: S105  # the variable's name
SLURM = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_NODELIST")
TOKEN_BYTES, NONCE_BYTES, PROOF_BYTES = 16, 32, 32
# Above the kernel's ports for outgoing connections (up to 60999), where srun listens too.
FIRST_PORT, PORTS = 61000, 4000
HELLO = struct.Struct("!cII")  # purpose, connecting rank, target rank
HANDSHAKE_SECONDS = 10.0  # for a client that connects but sends nothing
RETRY_SECONDS = 0.1
MESSAGE_LIMIT = 16 * 1024**2


class RingError(ConnectionError):
    """The ranks cannot reach or trust each other, or a rank is lost."""


@dataclass(frozen=True)
class Limits:
    """Seconds until all ranks are connected, and then without any progress."""

    connect: float
    progress: float


@dataclass(frozen=True)
class Place:
    """The location of a rank; `address` is its node's name until the address is known."""

    rank: int
    node: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.node} ({self.address}:{self.port})"


def proof(token: bytes, role: bytes, nonces: bytes, hello: bytes) -> bytes:
    """Return a proof of knowing the token; the role keeps an end from returning the other end's proof."""
    return hmac.digest(token, role + nonces + hello, "sha256")


def read_exactly(link: socket.socket, count: int) -> bytes:
    """Return `count` bytes. Raises ConnectionError if the other end closes first."""
    data = b""
    while len(data) < count:
        more = link.recv(count - len(data))
        if not more:
            raise ConnectionError("it closed the connection")
        data += more
    return data


class Link:
    def __init__(self, mine: Place, theirs: Place, connection: socket.socket) -> None:
        self.mine, self.theirs, self.connection = mine, theirs, connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def lost(self, error: object) -> RingError:
        return RingError(f"{self.mine} lost {self.theirs}: {error}")

    def moved(self, action: Callable[[], int]) -> int:
        """Return the bytes that a non-blocking action moved; 0 if it would block."""
        try:
            count = action()
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self.lost(error) from None
        if not count:
            raise self.lost("it closed the connection")
        return count

    def send(self, value: object) -> None:
        text = json.dumps(value).encode()
        try:
            self.connection.sendall(struct.pack("!I", len(text)) + text)
        except OSError as error:
            raise self.lost(error) from None

    def receive(self) -> Any:
        try:
            (length,) = struct.unpack("!I", read_exactly(self.connection, 4))
            if length > MESSAGE_LIMIT:
                raise ConnectionError(f"it announced a message of {length} bytes")
            return json.loads(read_exactly(self.connection, length))
        except TimeoutError:
            raise self.lost(f"it sent nothing for {self.connection.gettimeout():g} s") from None
        except OSError as error:
            raise self.lost(error) from None


class Meeting:
    """This rank's listening socket, and authenticated connections to and from other ranks."""

    def __init__(self, environment: Mapping[str, str], address: str, limits: Limits) -> None:
        self.limits, self.deadline = limits, time.monotonic() + limits.connect
        missing = [name for name in SLURM if name not in environment]
        if missing:
            raise RingError(f"{', '.join(missing)} not set: start this with srun")
        rank, self.ranks, job = (int(environment[name]) for name in SLURM[:3])
        self.nodes = node_names(environment[SLURM[3]])
        self.port = FIRST_PORT + job % PORTS
        self.token = environment.get(TOKEN, "").encode()
        if len(self.token) < TOKEN_BYTES:
            raise RingError(f"rank {rank}: {TOKEN} has {len(self.token)} bytes but needs {TOKEN_BYTES}")
        self.listen_at(rank, address, self.port if rank == 0 else 0)

    def listen_at(self, rank: int, address: str, port: int = 0) -> None:
        try:
            self.listener = socket.create_server((address, port), backlog=self.ranks)
        except OSError as error:
            raise RingError(f"rank {rank} cannot listen on {address}:{port}: {error}") from None
        self.mine = Place(rank, self.node(rank), address, self.listener.getsockname()[1])

    def node(self, rank: int) -> str:
        """Return the node of a rank: srun fills the nodes in order, each with the same number of ranks."""
        return self.nodes[rank * len(self.nodes) // self.ranks]

    def left(self) -> float:
        """Return the seconds left to connect; above 0, because 0 would mean not to wait."""
        return max(self.deadline - time.monotonic(), 1e-3)

    def connect(self, purpose: bytes, place: Place) -> Link:
        """Return a link to a rank that may still be starting."""
        address = place.address
        while True:
            try:
                address = socket.gethostbyname(place.address)
                connection = socket.create_connection((address, place.port), self.left(), (self.mine.address, 0))
                break
            except OSError as error:
                if time.monotonic() >= self.deadline:
                    theirs = Place(place.rank, place.node, address, place.port)
                    limit = f"within {self.limits.connect:g} s"
                    raise RingError(f"{self.mine} cannot reach {theirs} {limit}: {error}") from None
                time.sleep(RETRY_SECONDS)
        theirs = Place(place.rank, place.node, address, place.port)
        hello = HELLO.pack(purpose, self.mine.rank, place.rank)
        try:
            connection.settimeout(self.left())
            nonces = read_exactly(connection, NONCE_BYTES) + (nonce := token_bytes(NONCE_BYTES))
            connection.sendall(nonce + hello + proof(self.token, b"connect", nonces, hello))
            answer = read_exactly(connection, PROOF_BYTES)
        except OSError as error:
            raise RingError(f"{theirs} rejected {self.mine}: {error}; it may have another {TOKEN}") from None
        if not hmac.compare_digest(answer, proof(self.token, b"accept", nonces, hello)):
            raise RingError(f"{self.mine} does not trust {theirs}: it does not know this job's {TOKEN}")
        return Link(self.mine, theirs, connection)

    def accept(self, purpose: bytes, expected: Iterable[int]) -> Link:
        """Return a link from one of the expected ranks; reject other clients."""
        waiting = sorted(expected)
        while True:
            self.listener.settimeout(self.left())
            try:
                connection, (address, port) = self.listener.accept()
            except TimeoutError:
                missing = ", ".join(
                    f"rank {rank} on {self.node(rank)} ({self.expected_address(rank)})" for rank in waiting
                )
                raise RingError(
                    f"{self.mine} waited {self.limits.connect:g} s, but these did not connect: {missing}"
                ) from None
            try:
                connection.settimeout(min(HANDSHAKE_SECONDS, self.left()))
                rank = self.examine(connection, purpose, waiting)
            except OSError as error:
                connection.close()
                sys.stderr.write(f"tailrack ring: {self.mine} rejected {address}: {error}\n")
                continue
            return Link(self.mine, Place(rank, self.node(rank), address, port), connection)

    def examine(self, connection: socket.socket, purpose: bytes, waiting: list[int]) -> int:
        """Return the rank that connected. Raises ConnectionError if it is not expected."""
        connection.sendall(nonce := token_bytes(NONCE_BYTES))
        message = read_exactly(connection, NONCE_BYTES + HELLO.size + PROOF_BYTES)
        hello = message[NONCE_BYTES:-PROOF_BYTES]
        nonces = nonce + message[:NONCE_BYTES]
        if not hmac.compare_digest(message[-PROOF_BYTES:], proof(self.token, b"connect", nonces, hello)):
            raise ConnectionError(f"it does not know this job's {TOKEN}")
        requested, rank, target = HELLO.unpack(hello)
        if (requested, target) != (purpose, self.mine.rank) or rank not in waiting:
            raise ConnectionError(f"rank {rank} is not expected here now")
        connection.sendall(proof(self.token, b"accept", nonces, hello))
        return int(rank)

    def expected_address(self, rank: int) -> str:
        """Return the address of a missing rank from its node's name, or the error of that lookup."""
        try:
            return socket.gethostbyname(self.node(rank))
        except OSError as error:
            return f"its name: {error}"
