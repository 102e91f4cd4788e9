"""An all_reduce ring over TCP between the tasks of a Slurm step, for nodes without a common MPI.

Node names resolve to addresses on the meeting interface. There rank 0 listens on a port that follows from the job's
number, and the ranks exchange their addresses on the measured interface; then each rank connects to the next one. Every
socket is bound to one of the two. A connection carries data only after both ends have proved, by an HMAC over fresh
random bytes, that they know the job's token: the environment variable TAILRACK_RING_TOKEN, which only the job's user
can read. The data is only as safe as the network: a tailnet encrypts it. Every wait has a limit; RingError names both
ranks, the node and its address.
"""

import hmac
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from secrets import token_bytes
from typing import Any

import numpy as np

from components.slurm_commands.nodes import node_names

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
        theirs = place
        while True:
            try:
                theirs = replace(place, address=socket.gethostbyname(place.address))
                own = (self.mine.address, 0)
                connection = socket.create_connection((theirs.address, theirs.port), self.left(), own)
                break
            except OSError as error:
                if time.monotonic() >= self.deadline:
                    limit = f"within {self.limits.connect:g} s"
                    raise RingError(f"{self.mine} cannot reach {theirs} {limit}: {error}") from None
                time.sleep(RETRY_SECONDS)
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


MEETING, RING = b"m", b"r"
SEGMENT = 256 * 1024  # bytes; a segment stays in a core's cache while it is summed


class Ring:
    """All tasks of this Slurm step. Raises RingError if they do not find each other.

    address   address of the measured interface
    meet      address of the interface to which node names resolve
    """

    def __init__(self, address: str, meet: str, limits: Limits, environment: Mapping[str, str] = os.environ) -> None:
        meeting = Meeting(environment, meet, limits)
        self.rank, self.ranks, self.limits = meeting.mine.rank, meeting.ranks, limits
        self.links = self._meet(meeting)
        for link in self.links:
            link.connection.settimeout(limits.progress)
        if address != meet:
            meeting.listener.close()
            meeting.listen_at(self.rank, address)
        addresses = self.allgather([address, meeting.mine.port])
        next_rank, previous_rank = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        place = Place(next_rank, meeting.node(next_rank), *addresses[next_rank])
        # Neighbours take turns: if all connected first, none would accept.
        if self.rank % 2 == 0:
            self.next = meeting.connect(RING, place)
        self.previous = meeting.accept(RING, [previous_rank])
        if self.rank % 2:
            self.next = meeting.connect(RING, place)
        meeting.listener.close()
        for link in (self.next, self.previous):
            link.connection.setblocking(False)
        self.scratch = np.empty(SEGMENT // 4, np.float32)

    @staticmethod
    def _meet(meeting: Meeting) -> list[Link]:
        """Return the links from all ranks to rank 0, in rank order; on another rank the single link to it."""
        if meeting.mine.rank:
            node = meeting.node(0)
            return [meeting.connect(MEETING, Place(0, node, node, meeting.port))]
        links: dict[int, Link] = {}
        while len(links) < meeting.ranks - 1:
            link = meeting.accept(MEETING, set(range(1, meeting.ranks)) - links.keys())
            links[link.theirs.rank] = link
        return [links[rank] for rank in sorted(links)]

    def allgather(self, value: Any) -> list[Any]:
        """Return each rank's value (of JSON's types) in rank order."""
        if self.rank:
            self.links[0].send(value)
            return list(self.links[0].receive())
        values = [value, *(link.receive() for link in self.links)]
        for link in self.links:
            link.send(values)
        return values

    def barrier(self) -> None:
        self.allgather(None)

    def all_reduce(self, source: np.ndarray, receive: np.ndarray) -> None:
        """Sum float32 of all ranks into `receive`, which may be `source` itself.

        Each part travels the ring twice: once to be summed, once to be copied. A received byte is forwarded at once.
        """
        bounds = [receive.size * number // self.ranks for number in range(self.ranks + 1)]

        def part(array: np.ndarray, number: int) -> np.ndarray:
            return array[bounds[number % self.ranks] : bounds[number % self.ranks + 1]]

        sums, steps = self.ranks - 1, 2 * (self.ranks - 1)
        first = part(source, self.rank)
        sender = Sender(self.next, [first, *(part(receive, self.rank - step) for step in range(1, steps))])
        receiver = Receiver(
            self.previous,
            [
                (part(receive, number), part(source, number) if step < sums else None)
                for step, number in ((step, self.rank - 1 - step) for step in range(steps))
            ],
            self.scratch,
        )
        while sender.parts or receiver.parts:
            moved = sender.move(first.nbytes + receiver.done) + receiver.move()
            if not moved:
                self._wait(sender, receiver, first.nbytes + receiver.done)

    def _wait(self, sender: "Sender", receiver: "Receiver", ready: int) -> None:
        """Wait until data can move. The next rank sends nothing here, so readable data means that it closed."""
        waiting = select.poll()
        sends = bool(sender.parts) and ready > sender.done
        waiting.register(self.next.connection, select.POLLIN | (select.POLLOUT if sends else 0))
        if receiver.parts:
            waiting.register(self.previous.connection, select.POLLIN)
        events = dict(waiting.poll(self.limits.progress * 1000))
        if not events:
            link, verb = (self.previous, "sent") if receiver.parts else (self.next, "received")
            raise link.lost(f"it has {verb} nothing for {self.limits.progress:g} s")
        if events.get(self.next.connection.fileno(), 0) & ~select.POLLOUT:
            self.next.moved(lambda: len(self.next.connection.recv(1)))


class Sender:
    """Parts to send to the next rank; `done` bytes are sent."""

    def __init__(self, link: Link, parts: list[np.ndarray]) -> None:
        self.link, self.done = link, 0
        self.parts = [part.view(np.uint8) for part in reversed(parts) if part.size]

    def move(self, ready: int) -> int:
        if not self.parts or ready <= self.done:
            return 0
        part = self.parts[-1]
        count = self.link.moved(lambda: self.link.connection.send(part[: min(ready - self.done, SEGMENT)]))
        self.done += count
        self.parts[-1] = part[count:]
        if count == part.size:
            self.parts.pop()
        return count


class Receiver:
    """Parts to receive from the previous rank: (target, summand or None); `done` bytes have arrived."""

    def __init__(self, link: Link, parts: list[tuple[np.ndarray, np.ndarray | None]], scratch: np.ndarray) -> None:
        self.link, self.scratch, self.done = link, scratch, 0
        self.parts = [part for part in reversed(parts) if part[0].size]
        self.place = self.pending = 0  # bytes: finished in this part; in scratch, less than one float32

    def move(self) -> int:
        if not self.parts:
            return 0
        target, summand = self.parts[-1]
        rest = target.nbytes - self.place
        if summand is None:
            into = target.view(np.uint8)[self.place :][:SEGMENT]
            count = whole = self.link.moved(lambda: self.link.connection.recv_into(into))
        else:
            bytes_ = self.scratch.view(np.uint8)
            into = bytes_[self.pending : min(rest, SEGMENT)]
            count = self.link.moved(lambda: self.link.connection.recv_into(into))
            available = self.pending + count
            whole = available - available % 4
            start, end = self.place // 4, (self.place + whole) // 4
            np.add(summand[start:end], self.scratch[: whole // 4], out=target[start:end])
            self.pending = available - whole
            bytes_[: self.pending] = bytes_[whole:available]
        self.place += whole
        self.done += whole
        if self.place == target.nbytes:
            self.parts.pop()
            self.place = 0
        return count
