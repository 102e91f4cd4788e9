"""Decide whether a job hangs, from the stalls on all its nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from components.roles.job_hangs.communicators import EQUAL, KINDS, MOST_RANKS, NONE, PEER
from components.roles.job_hangs.line import Hang, Late
from components.roles.job_hangs.stall import LateRank, Stall, apart


def judge(stalls: Mapping[str, Stall | None], minutes: int, addresses: Mapping[str, str]) -> Hang | None:
    """Return the hang; None if a node does not answer, a GPU works, or RAS shows nothing or progress.

    stalls     by node; None of a node that does not answer
    addresses  nodes' names by tailnet address
    """
    known = {name: stall for name, stall in stalls.items() if stall is not None}
    if len(known) < len(stalls) or not known or any(stall.samples < minutes for stall in known.values()):
        return None
    # First sign: no GPU of the job has worked, and one waits.
    if not any(stall.waiting for stall in known.values()):
        return None
    # Second sign: RAS answered the same twice, far enough apart.
    found = [
        (KINDS.index(stall.finding.kind), name, stall.finding)
        for name, stall in known.items()
        if stall.finding and stall.unchanged >= apart(minutes)
    ]
    if not found:
        return None
    _, _, finding = min(found, key=lambda row: row[:2])
    since = max(stall.since for stall in known.values())
    idle = sum(stall.idle for stall in known.values())
    if finding.kind in (EQUAL, NONE) and idle and finding.size > 1:
        # RAS counts no sends and receives, in which some ranks may wait for those with an idle GPU.
        late = tuple(
            Late(rank.number, name, rank.gpu, rank.process)
            for name, stall in sorted(known.items())
            for rank in (stall.finding.ranks if stall.finding else ())
            if rank.here
        )[:MOST_RANKS]
        return Hang(since, PEER, size=finding.size, total=max(idle, len(late)), ranks=late)
    if finding.kind == NONE:
        return None
    nodes = {
        _program(rank): name
        for name, stall in known.items()
        if stall.finding
        for rank in stall.finding.ranks
        if rank.here
    }
    # Those of EQUAL are ranks with an idle GPU.
    named = () if finding.kind == EQUAL else finding.ranks
    ranks = tuple(
        Late(rank.number, nodes.get(_program(rank)) or addresses.get(rank.host, rank.host), rank.gpu, rank.process)
        for rank in named
    )
    return Hang(since, finding.kind, finding.operation, finding.count, finding.most, finding.size, finding.total, ranks)


def _program(rank: LateRank) -> tuple[str, int]:
    return (rank.host, rank.process)
