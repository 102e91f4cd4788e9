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
# Kinds of findings, the clearest first.
MISSING, ABSENT, BEHIND, DIFFERENT, EQUAL, NONE = "missing", "absent", "behind", "different", "equal", "none"
KINDS = (MISSING, ABSENT, BEHIND, DIFFERENT, EQUAL, NONE)


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
class Group:
    """Ranks that have launched the same number of operations. RAS's text names only the ranks of small groups."""

    count: int
    size: int
    ranks: tuple[Rank, ...] = ()


@dataclass(frozen=True)
class Communicator:
    """A communicator.

    operations  groups of ranks by operation. RAS's text has only operations whose groups differ
    complete    whether `operations` has all of them
    missing     ranks whose process does not answer RAS
    absent      ranks whose process answers and does not belong to the communicator
    """

    name: str
    size: int
    operations: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)
    complete: bool = False
    missing: tuple[Rank, ...] = ()
    absent: tuple[Rank, ...] = ()


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
    uneven = [(item, name) for item in by_size for name, groups in sorted(item.operations.items()) if len(groups) > 1]
    for item, name in uneven:
        groups = item.operations[name]
        most = max(group.count for group in groups)
        late = [group for group in groups if group.count < most]
        named = [rank for group in late for rank in group.ranks]
        if named and not any(rank.program in causes for rank in named):
            continue
        total = sum(group.size for group in late)
        if len(named) == total:
            named = [rank for rank in named if rank.program in causes]
            total = len(named)
        count = min(group.count for group in late)
        ranks = tuple(sorted(named, key=lambda rank: rank.number))[:MOST_RANKS]
        return Finding(digest, BEHIND, name, count, most, item.size, ranks, total)
    if uneven:
        names = ",".join(sorted({name for _, name in uneven}))
        return Finding(digest, DIFFERENT, names, size=uneven[0][0].size)
    launched = [(item, name) for item in by_size if item.complete for name, groups in item.operations.items() if groups]
    # All ranks have launched the same operations. The operation of which most were launched describes the job best.
    best = max(launched, key=lambda pair: pair[0].operations[pair[1]][0].count, default=None)
    if best is None or not (most := best[0].operations[best[1]][0].count):
        return Finding(digest, NONE)
    return Finding(digest, EQUAL, best[1], most, most, best[0].size)


def _ranks(item: Communicator, *, ahead: bool) -> Iterable[Rank]:
    for groups in item.operations.values():
        most = max((group.count for group in groups), default=0)
        if len(groups) > 1:
            yield from (rank for group in groups if (group.count == most) == ahead for rank in group.ranks)


def _digest(communicators: Iterable[Communicator]) -> str:
    rows = sorted(
        (item.name, item.size, _counts(item), sorted(rank.number for rank in (*item.missing, *item.absent)))
        for item in communicators
    )
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _counts(item: Communicator) -> list[tuple[str, list[tuple[int, int]]]]:
    return sorted(
        (name, sorted((group.count, group.size) for group in groups)) for name, groups in item.operations.items()
    )
