"""NCCL communicators as the RAS subsystem of NCCL describes them, and the ranks that others wait for. Pure.

A rank that has launched more operations of a communicator than another waits for it. A rank that others wait for and
that waits for no one itself is the cause.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MOST_RANKS = 8
# Kinds of findings, the clearest first. PEER is EQUAL or NONE while some GPUs wait and others are idle (find.py).
MISSING, ABSENT, BEHIND, DIFFERENT = "missing", "absent", "behind", "different"
PEER, EQUAL, NONE = "peer", "equal", "none"
KINDS = (MISSING, ABSENT, BEHIND, DIFFERENT, PEER, EQUAL, NONE)


@dataclass(frozen=True)
class Rank:
    """A rank of a communicator: its number there, its machine's address, its process, and its GPU as NVML counts."""

    number: int
    host: str = ""
    process: int = 0
    gpu: int = -1

    @property
    def program(self) -> tuple[str, int, int]:
        """Return what is the same in all communicators of the rank."""
        return (self.host, self.process, self.gpu)


@dataclass(frozen=True)
class Communicator:
    """A communicator.

    operations  ranks by the number of operations that they have launched, by operation
    missing     ranks whose process does not answer RAS
    absent      ranks whose process answers and does not belong to the communicator
    """

    name: str
    size: int
    operations: Mapping[str, Mapping[int, tuple[Rank, ...]]] = field(default_factory=dict)
    missing: tuple[Rank, ...] = ()
    absent: tuple[Rank, ...] = ()

    @property
    def ranks(self) -> set[Rank]:
        """Return all ranks that RAS names."""
        counted = (rank for counts in self.operations.values() for ranks in counts.values() for rank in ranks)
        return {*counted, *self.missing, *self.absent}


@dataclass(frozen=True)
class Finding:
    """The state of a job's communicators.

    digest     changes with every operation that RAS shows
    operation  the operation that others wait in, or several names
    count      operations that the ranks behind have launched; the others have launched `most`
    size       ranks of the communicator
    ranks      the ranks that others wait for, at most MOST_RANKS
    total      number of these ranks
    """

    digest: str
    kind: str
    operation: str = ""
    count: int = 0
    most: int = 0
    size: int = 0
    ranks: tuple[Rank, ...] = ()
    total: int = 0


def finding(communicators: Sequence[Communicator]) -> Finding:
    """Return the finding about all communicators of a job."""
    digest = _digest(communicators)
    by_size = sorted(communicators, key=lambda item: (-item.size, item.name))
    for kind in (MISSING, ABSENT):
        for item in by_size:
            if ranks := item.missing if kind == MISSING else item.absent:
                return Finding(digest, kind, size=item.size, ranks=ranks[:MOST_RANKS], total=len(ranks))
    behind = {rank.program for item in by_size for rank in _ranks(item, ahead=False)}
    waiting = {rank.program for item in by_size for rank in _ranks(item, ahead=True)}
    causes = behind - waiting
    uneven = [(item, name) for item in by_size for name, counts in sorted(item.operations.items()) if len(counts) > 1]
    for item, name in uneven:
        most = max(item.operations[name])
        late = {
            rank: count
            for count, ranks in item.operations[name].items()
            for rank in ranks
            if count < most and rank.program in causes
        }
        if late:
            ranks = tuple(sorted(late, key=lambda rank: rank.number))[:MOST_RANKS]
            return Finding(digest, BEHIND, name, min(late.values()), most, item.size, ranks, len(late))
    if uneven:
        names = ",".join(sorted({name for _, name in uneven}))
        return Finding(digest, DIFFERENT, names, size=uneven[0][0].size)
    # All ranks have launched the same operations. The operation of which most were launched describes the job best.
    launched = [
        (max(counts), item.size, name) for item in by_size for name, counts in item.operations.items() if counts
    ]
    most, size, name = max(launched, key=lambda row: row[0], default=(0, 0, ""))
    return Finding(digest, EQUAL, name, most, most, size) if most else Finding(digest, NONE, size=size)


def _ranks(item: Communicator, *, ahead: bool) -> Iterable[Rank]:
    for counts in item.operations.values():
        if len(counts) > 1:
            yield from (rank for count, ranks in counts.items() if (count == max(counts)) == ahead for rank in ranks)


def _digest(communicators: Iterable[Communicator]) -> str:
    rows = sorted(
        (item.name, item.size, _counts(item), sorted(rank.number for rank in (*item.missing, *item.absent)))
        for item in communicators
    )
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _counts(item: Communicator) -> list[tuple[str, list[tuple[int, int]]]]:
    return sorted(
        (name, sorted((count, len(ranks)) for count, ranks in counts.items()))
        for name, counts in item.operations.items()
    )
