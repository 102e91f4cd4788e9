"""A ring of a Slurm step's tasks over TCP: all_reduce where no one MPI is on all nodes.

Slurm's environment says who takes part, and names of nodes resolve to their addresses on the interface where they meet
(ring_meeting.py). There they learn each other's addresses on the interface that is measured, then each rank connects to
the next one. Every socket is bound to either. The data is as safe as the network: a tailnet encrypts it.

Every wait has a limit; RingError is one line that names this rank, the other one, its node and its address.
"""

import os
import select
from collections.abc import Mapping
from typing import Any

import numpy as np

from components.validation.ring_meeting import Limits, Link, Meeting, Place

MEETING, RING = b"m", b"r"
SEGMENT = 256 * 1024  # bytes; what is summed at once stays in a core's cache


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
