"""NCCL communicators as the RAS subsystem of NCCL describes them, and the ranks that others wait for. Pure.

A rank that has launched more operations of a communicator than another waits for it. A rank that others wait for and
that waits for no one itself is the cause.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from components.slurm_commands.jobs import read_part

MOST_RANKS = 8
# Kinds of findings, the clearest first. PEER is EQUAL or NONE while some GPUs wait and others are idle (find_hangs.py).
MISSING, ABSENT, BEHIND, DIFFERENT = "missing", "absent", "behind", "different"
PEER, EQUAL, NONE = "peer", "equal", "none"
KINDS = (MISSING, ABSENT, BEHIND, DIFFERENT, PEER, EQUAL, NONE)


_MOST = 2**53
Count = Annotated[int, range(_MOST)]


@dataclass(frozen=True)
class Rank:
    """A rank of a communicator: its number there, its machine's address, its process, and its GPU as NVML counts.

    here   whether it runs on the node that RAS was asked on
    """

    number: Count
    host: Annotated[str, r"[0-9a-f.:]{0,45}"] = ""
    process: Count = 0
    gpu: Annotated[int, range(-1, _MOST)] = -1
    here: bool = False

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
    """The state of a job's communicators. A node's root reads it from a process of the job's user (untrusted.py).

    digest     changes with every operation that RAS shows
    operation  the operation that others wait in, or several names
    count      operations that the ranks behind have launched; the others have launched `most`
    size       ranks of the communicator
    ranks      the ranks that others wait for, at most MOST_RANKS
    total      number of these ranks
    """

    digest: Annotated[str, r"[0-9a-f]{64}"]
    kind: Annotated[str, "|".join(KINDS)]
    operation: Annotated[str, r"[A-Za-z,]{0,200}"] = ""
    count: Count = 0
    most: Count = 0
    size: Count = 0
    ranks: tuple[Rank, ...] = ()
    total: Count = 0

    def __post_init__(self) -> None:
        if len(self.ranks) > MOST_RANKS:
            raise ValueError("it has too many ranks")


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


# A node's clock differs by less from the head node's.
CLOCK_SECONDS = 60


@dataclass(frozen=True)
class Late:
    """A rank that the others wait for: its number, its node or its address, its GPU there and its process."""

    number: int
    node: str
    gpu: int
    process: int


@dataclass(frozen=True)
class Hang:
    """A job that hangs; see communicators.Finding. `since`: Unix seconds."""

    since: int
    kind: str
    operation: str = ""
    count: int = 0
    most: int = 0
    size: int = 0
    total: int = 0
    ranks: tuple[Late, ...] = ()


def read_hang(admin_comment: str, start: int) -> Hang | None:
    """Read a job's AdminComment; None if tailrack has noted no hang there since the job's start in Unix seconds."""
    hang = read_part(admin_comment, "hang", Hang)
    return hang if hang and hang.kind in KINDS and hang.since > start - CLOCK_SECONDS else None


def sentence(hang: Hang) -> str:
    """Return a sentence for people."""
    since = time.strftime("%H:%M", time.gmtime(hang.since))
    who = _who(hang)
    is_, has = ("is", "has") if hang.total == 1 else ("are", "have")
    wait = f"the others wait for {'it' if hang.total == 1 else 'them'} since {since} UTC"
    if hang.kind == BEHIND:
        return f"It seems to hang: {who} {is_} behind: {hang.count} of {hang.most} {hang.operation}; {wait}."
    if hang.kind == MISSING:
        return f"It seems to hang: {who} {'does' if hang.total == 1 else 'do'} not answer; {wait}."
    if hang.kind == ABSENT:
        return f"It seems to hang: {who} {has} not joined a communicator of {hang.size} ranks, or left it; {wait}."
    if hang.kind == DIFFERENT:
        names = hang.operation.replace(",", ", ")
        what = f"its ranks launch different operations ({names}) and wait for each other since {since} UTC"
        return f"It seems to hang: {what}."
    if hang.kind == PEER:
        gpus = "an idle GPU" if hang.total == 1 else "idle GPUs"
        return (
            f"It seems to hang: {who} {has} {gpus}, and the others wait, perhaps for a send or receive, since {since} "
            "UTC. No rank is behind in a collective operation."
        )
    return (
        f"It seems to hang: all {hang.size} ranks wait in {hang.operation} {hang.most} since {since} UTC, and none is "
        "behind. Look for errors of a GPU or the network in the job's output (NCCL_DEBUG=WARN)."
    )


def next_command(job: str, hang: Hang) -> str:
    """Return the command that shows what the first of the ranks does; empty if its process is unknown."""
    rank = next((rank for rank in hang.ranks if rank.process and rank.node), None)
    if rank is None or not re.fullmatch(r"[a-z0-9-]+", rank.node):
        return ""
    place = f"srun --jobid={job} --overlap -N1 -n1 -w {rank.node}"
    if hang.kind == MISSING:
        return f"{place} ps -o pid,stat,wchan:32,etime,args -p {rank.process}"
    return f"{place} py-spy dump --pid {rank.process}"


def _who(hang: Hang) -> str:
    named = ", ".join(_named(rank) for rank in hang.ranks[:4])
    more = hang.total - len(hang.ranks[:4])
    if not named:
        return f"{hang.total} of {hang.size} ranks" if hang.total != 1 else "one rank"
    return f"{'rank' if hang.total == 1 else 'ranks'} {named}{f' and {more} more' if more > 0 else ''}"


def _named(rank: Late) -> str:
    places = [f"node {rank.node}"] if rank.node else []
    places += [f"GPU {rank.gpu}"] if rank.gpu >= 0 else []
    return f"{rank.number} ({', '.join(places)})" if places else str(rank.number)
