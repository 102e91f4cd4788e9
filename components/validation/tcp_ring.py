"""A ring of a Slurm step's tasks over TCP: all_reduce where no one MPI is on all nodes.

Slurm's environment says who takes part, and names of nodes resolve to their addresses on the interface where they meet.
Rank 0 listens there on a port that follows from the job's number; the others meet there and learn each other's
addresses on the interface that is measured, then each rank connects to the next one. Every socket is bound to either.

A connection carries data only after both ends have proved, by an HMAC over fresh random bytes, that they know the
job's token: the environment variable TAILRACK_RING_TOKEN, which only the job's user can read. The data itself is as
safe as the network: a tailnet encrypts it.

Every wait has a limit; RingError is one line that names this rank, the other one, its node and its address.
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
from dataclasses import dataclass
from secrets import token_bytes
from typing import Any

import numpy as np

from components.validation.node_names import node_names

TOKEN = "TAILRACK_RING_TOKEN"  # noqa: S105  # the variable's name
SLURM = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_NODELIST")
TOKEN_BYTES, NONCE_BYTES, PROOF_BYTES = 16, 32, 32
# Above what kernels give to outgoing connections (up to 60999), where also srun listens.
FIRST_PORT, PORTS = 61000, 4000
HELLO = struct.Struct("!cII")  # purpose, who connects, to whom
MEETING, RING = b"m", b"r"
HANDSHAKE_SECONDS = 10.0  # for a stranger who connects and says nothing
RETRY_SECONDS = 0.1
MESSAGE_LIMIT = 16 * 1024**2
SEGMENT = 256 * 1024  # bytes; what is summed at once stays in a core's cache


class RingError(ConnectionError):
    """The ranks cannot reach or trust each other, or one is lost."""


@dataclass(frozen=True)
class Limits:
    """Seconds to wait until all have met, and for anything to move after that."""

    connect: float
    progress: float


@dataclass(frozen=True)
class Place:
    """Where a rank is; `address` is a node's name until it is known better."""

    rank: int
    node: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.node} ({self.address}:{self.port})"


def proof(token: bytes, role: bytes, nonces: bytes, hello: bytes) -> bytes:
    """What only one who knows the token can say; the role keeps one end from sending back what the other said."""
    return hmac.digest(token, role + nonces + hello, "sha256")


def read_exactly(link: socket.socket, count: int) -> bytes:
    """`count` bytes; ConnectionError where the other end closed before."""
    data = b""
    while len(data) < count:
        more = link.recv(count - len(data))
        if not more:
            raise ConnectionError("it closed the connection")
        data += more
    return data


class Link:
    """A proved connection to another rank."""

    def __init__(self, mine: Place, theirs: Place, connection: socket.socket) -> None:
        self.mine, self.theirs, self.connection = mine, theirs, connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def lost(self, error: object) -> RingError:
        return RingError(f"{self.mine} lost {self.theirs}: {error}")

    def moved(self, action: Callable[[], int]) -> int:
        """Bytes that a non-blocking action moved; 0 where it would have had to wait."""
        try:
            count = action()
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self.lost(error) from None
        if not count:
            raise self.lost("it closed the connection")
        return count

    def tell(self, value: object) -> None:
        text = json.dumps(value).encode()
        try:
            self.connection.sendall(struct.pack("!I", len(text)) + text)
        except OSError as error:
            raise self.lost(error) from None

    def hear(self) -> Any:
        try:
            (length,) = struct.unpack("!I", read_exactly(self.connection, 4))
            if length > MESSAGE_LIMIT:
                raise ConnectionError(f"it announced a message of {length} bytes")
            return json.loads(read_exactly(self.connection, length))
        except TimeoutError:
            raise self.lost(f"it said nothing for {self.connection.gettimeout():g} s") from None
        except OSError as error:
            raise self.lost(error) from None


class Meeting:
    """This rank's listening socket, and connections to and from other ranks that prove themselves."""

    def __init__(self, environment: Mapping[str, str], address: str, limits: Limits) -> None:
        self.limits, self.deadline = limits, time.monotonic() + limits.connect
        missing = [name for name in SLURM if name not in environment]
        if missing:
            raise RingError(f"{', '.join(missing)} not set: start this with srun")
        rank, self.ranks, job = (int(environment[name]) for name in SLURM[:3])
        self.nodes = node_names(environment[SLURM[3]])
        self.door = FIRST_PORT + job % PORTS
        self.token = environment.get(TOKEN, "").encode()
        if len(self.token) < TOKEN_BYTES:
            raise RingError(f"rank {rank}: {TOKEN} has {len(self.token)} bytes of the {TOKEN_BYTES} that it needs")
        self.listen_at(rank, address, self.door if rank == 0 else 0)

    def listen_at(self, rank: int, address: str, port: int = 0) -> None:
        """Be found at an address from now on."""
        try:
            self.listener = socket.create_server((address, port), backlog=self.ranks)
        except OSError as error:
            raise RingError(f"rank {rank} cannot listen on {address}:{port}: {error}") from None
        self.mine = Place(rank, self.node(rank), address, self.listener.getsockname()[1])

    def node(self, rank: int) -> str:
        """The node of a rank: srun was told to fill one node after another, each with the same number."""
        return self.nodes[rank * len(self.nodes) // self.ranks]

    def left(self) -> float:
        """Seconds until everybody must be here; above 0, which would mean not to wait."""
        return max(self.deadline - time.monotonic(), 1e-3)

    def connect(self, purpose: bytes, place: Place) -> Link:
        """A link to a rank that may still be starting."""
        address = place.address
        while True:
            try:
                address = socket.gethostbyname(place.address)
                connection = socket.create_connection((address, place.port), self.left(), (self.mine.address, 0))
                break
            except OSError as error:
                if time.monotonic() >= self.deadline:
                    theirs = Place(place.rank, place.node, address, place.port)
                    waited = f"within {self.limits.connect:g} s"
                    raise RingError(f"{self.mine} cannot reach {theirs} {waited}: {error}") from None
                time.sleep(RETRY_SECONDS)
        theirs = Place(place.rank, place.node, address, place.port)
        hello = HELLO.pack(purpose, self.mine.rank, place.rank)
        try:
            connection.settimeout(self.left())
            nonces = read_exactly(connection, NONCE_BYTES) + (own := token_bytes(NONCE_BYTES))
            connection.sendall(own + hello + proof(self.token, b"connect", nonces, hello))
            answer = read_exactly(connection, PROOF_BYTES)
        except OSError as error:
            raise RingError(f"{self.mine} was not let in by {theirs}: {error}; is its {TOKEN} another?") from None
        if not hmac.compare_digest(answer, proof(self.token, b"accept", nonces, hello)):
            raise RingError(f"{self.mine} does not trust {theirs}: it does not know this job's {TOKEN}")
        return Link(self.mine, theirs, connection)

    def accept(self, purpose: bytes, expected: Iterable[int]) -> Link:
        """A link from one of the expected ranks; strangers are turned away."""
        waiting = sorted(expected)
        while True:
            self.listener.settimeout(self.left())
            try:
                connection, (address, port) = self.listener.accept()
            except TimeoutError:
                missing = ", ".join(f"rank {rank} on {self.node(rank)} ({self.known(rank)})" for rank in waiting)
                raise RingError(f"{self.mine} waited {self.limits.connect:g} s in vain for {missing}") from None
            try:
                connection.settimeout(min(HANDSHAKE_SECONDS, self.left()))
                rank = self.examine(connection, purpose, waiting)
            except OSError as error:
                connection.close()
                sys.stderr.write(f"tailrack ring: {self.mine} turned {address} away: {error}\n")
                continue
            return Link(self.mine, Place(rank, self.node(rank), address, port), connection)

    def examine(self, connection: socket.socket, purpose: bytes, waiting: list[int]) -> int:
        """The rank that connected; ConnectionError where that is nobody who is expected."""
        connection.sendall(nonce := token_bytes(NONCE_BYTES))
        told = read_exactly(connection, NONCE_BYTES + HELLO.size + PROOF_BYTES)
        hello = told[NONCE_BYTES:-PROOF_BYTES]
        nonces = nonce + told[:NONCE_BYTES]
        if not hmac.compare_digest(told[-PROOF_BYTES:], proof(self.token, b"connect", nonces, hello)):
            raise ConnectionError(f"it does not know this job's {TOKEN}")
        asked, rank, to = HELLO.unpack(hello)
        if (asked, to) != (purpose, self.mine.rank) or rank not in waiting:
            raise ConnectionError(f"rank {rank} is not expected here now")
        connection.sendall(proof(self.token, b"accept", nonces, hello))
        return int(rank)

    def known(self, rank: int) -> str:
        """The address of a rank that has not shown up, as far as names tell."""
        try:
            return socket.gethostbyname(self.node(rank))
        except OSError as error:
            return f"its name: {error}"


class Ring:
    """All tasks of this Slurm step. Raises RingError where they do not find each other.

    address   of the interface that is measured
    meet      of the one on which nodes' names lead to them
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
        after, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        place = Place(after, meeting.node(after), *addresses[after])
        # Neighbours take turns, or all would connect and nobody accept.
        if self.rank % 2 == 0:
            self.next = meeting.connect(RING, place)
        self.previous = meeting.accept(RING, [before])
        if self.rank % 2:
            self.next = meeting.connect(RING, place)
        meeting.listener.close()
        for link in (self.next, self.previous):
            link.connection.setblocking(False)
        self.scratch = np.empty(SEGMENT // 4, np.float32)

    @staticmethod
    def _meet(meeting: Meeting) -> list[Link]:
        """Links from all ranks to rank 0, in rank order; on another rank the one link to it."""
        if meeting.mine.rank:
            node = meeting.node(0)
            return [meeting.connect(MEETING, Place(0, node, node, meeting.door))]
        links: dict[int, Link] = {}
        while len(links) < meeting.ranks - 1:
            link = meeting.accept(MEETING, set(range(1, meeting.ranks)) - links.keys())
            links[link.theirs.rank] = link
        return [links[rank] for rank in sorted(links)]

    def allgather(self, value: Any) -> list[Any]:
        """Each rank's value, of what JSON can say, in rank order."""
        if self.rank:
            self.links[0].tell(value)
            return list(self.links[0].hear())
        values = [value, *(link.hear() for link in self.links)]
        for link in self.links:
            link.tell(values)
        return values

    def barrier(self) -> None:
        """Return when all ranks are here."""
        self.allgather(None)

    def all_reduce(self, source: np.ndarray, receive: np.ndarray) -> None:
        """Sum float32 of all ranks into `receive`, which may be `source` itself.

        Each part of the array goes round twice: once to be summed, once to be copied. What comes in, summed or
        copied, is what goes out next, so a byte is sent on as soon as it is there.
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
        """Wait until something can move; the next rank says nothing here, so what it sends is its end."""
        waiting = select.poll()
        sends = bool(sender.parts) and ready > sender.done
        waiting.register(self.next.connection, select.POLLIN | (select.POLLOUT if sends else 0))
        if receiver.parts:
            waiting.register(self.previous.connection, select.POLLIN)
        events = dict(waiting.poll(self.limits.progress * 1000))
        if not events:
            link, does = (self.previous, "sent") if receiver.parts else (self.next, "taken")
            raise link.lost(f"it has {does} nothing for {self.limits.progress:g} s")
        if events.get(self.next.connection.fileno(), 0) & ~select.POLLOUT:
            self.next.moved(lambda: len(self.next.connection.recv(1)))


class Sender:
    """Parts on their way to the next rank; `done` bytes have left."""

    def __init__(self, link: Link, parts: list[np.ndarray]) -> None:
        self.link, self.done = link, 0
        self.parts = [part.view(np.uint8) for part in reversed(parts) if part.size]

    def move(self, ready: int) -> int:
        """Send what can be sent now of the first `ready` bytes; how many went."""
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
    """Parts to come from the previous rank: (where to, what to add or None); `done` bytes are there."""

    def __init__(self, link: Link, parts: list[tuple[np.ndarray, np.ndarray | None]], scratch: np.ndarray) -> None:
        self.link, self.scratch, self.done = link, scratch, 0
        self.parts = [part for part in reversed(parts) if part[0].size]
        self.place = self.pending = 0  # bytes: done in this part; in scratch, less than one float32

    def move(self) -> int:
        """Take and sum, or copy, what has come; how many bytes."""
        if not self.parts:
            return 0
        target, own = self.parts[-1]
        rest = target.nbytes - self.place
        if own is None:
            into = target.view(np.uint8)[self.place :][:SEGMENT]
            count = whole = self.link.moved(lambda: self.link.connection.recv_into(into))
        else:
            bytes_ = self.scratch.view(np.uint8)
            into = bytes_[self.pending : min(rest, SEGMENT)]
            count = self.link.moved(lambda: self.link.connection.recv_into(into))
            there = self.pending + count
            whole = there - there % 4
            start, end = self.place // 4, (self.place + whole) // 4
            np.add(own[start:end], self.scratch[: whole // 4], out=target[start:end])
            self.pending = there - whole
            bytes_[: self.pending] = bytes_[whole:there]
        self.place += whole
        self.done += whole
        if self.place == target.nbytes:
            self.parts.pop()
            self.place = 0
        return count
