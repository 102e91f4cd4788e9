"""A job that hangs, as a part of Slurm's AdminComment, which only Slurm's administrators can set. Pure.

tailrack hang: since=1790000000 kind=behind operation=AllReduce count=12034 most=12035 size=8 total=1 ranks=5/b1/1/4711
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from components.roles.job_hangs.communicators import ABSENT, BEHIND, DIFFERENT, KINDS, MISSING, PEER

# A node's clock differs by less from the head node's.
CLOCK_SECONDS = 60
# Separates the parts of a comment, as in usage/summary.py.
_AFTER = "; "
_NODE = r"[A-Za-z0-9.:-]{0,80}"
_RANK = rf"[0-9]{{1,9}}/{_NODE}/-?[0-9]{{1,4}}/[0-9]{{1,10}},?"
_LINE = re.compile(
    rf"tailrack hang: since=(?P<since>[0-9]{{1,12}}) kind=(?P<kind>{'|'.join(KINDS)}) "
    r"operation=(?P<operation>[A-Za-z,]{0,200}) count=(?P<count>[0-9]{1,16}) most=(?P<most>[0-9]{1,16}) "
    rf"size=(?P<size>[0-9]{{1,9}}) total=(?P<total>[0-9]{{1,9}}) ranks=(?P<ranks>(?:{_RANK}){{0,8}})"
)


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

    @property
    def text(self) -> str:
        """Return the part of the comment."""
        ranks = ",".join(f"{rank.number}/{rank.node}/{rank.gpu}/{rank.process}" for rank in self.ranks)
        return (
            f"tailrack hang: since={self.since} kind={self.kind} operation={self.operation} count={self.count} "
            f"most={self.most} size={self.size} total={self.total} ranks={ranks}"
        )


def read_hang(comment: str, start: int) -> Hang | None:
    """Read a job's AdminComment; None if tailrack has noted no hang there since the job's start in Unix seconds."""
    match = next(filter(None, map(_LINE.fullmatch, comment.split(_AFTER))), None)
    if match is None or int(match["since"]) <= start - CLOCK_SECONDS:
        return None
    rows = [word.split("/") for word in match["ranks"].split(",") if word]
    ranks = tuple(Late(int(number), node, int(gpu), int(process)) for number, node, gpu, process in rows)
    count, most, size, total = (int(match[name]) for name in ("count", "most", "size", "total"))
    return Hang(int(match["since"]), match["kind"], match["operation"], count, most, size, total, ranks)


def with_hang(comment: str, hang: Hang | None) -> str:
    """Return a job's AdminComment with another hang, or without one. Other parts stay."""
    others = [part for part in comment.split(_AFTER) if part and not part.startswith("tailrack hang:")]
    return _AFTER.join([*([hang.text] if hang else []), *others])


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
