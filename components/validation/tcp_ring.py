"""An all_reduce ring over TCP between the tasks of a Slurm step, for nodes without a common MPI.

Node names resolve to addresses on the meeting interface (ring_meeting.py). There the ranks exchange their addresses on
the measured interface; then each rank connects to the next one. Every socket is bound to one of the two. The data is
only as safe as the network: a tailnet encrypts it. Every wait has a limit; RingError names both ranks, the node and its
address.
"""

import os
import select
from collections.abc import Mapping
from typing import Any

import numpy as np

from components.validation.ring_meeting import Limits, Link, Meeting, Place

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
