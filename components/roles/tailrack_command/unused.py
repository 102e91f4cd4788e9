"""Whether nodes are used by nobody, and for how long: pure, from what slurmctld says and the book of costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from components.roles.tailrack_command.book import Stay, joined, left
from components.roles.tailrack_command.job import Job
from components.validation.slurm_nodes import Node

Expand = Callable[[str], Sequence[str]]
# Of jobs that do not begin by themselves.
_HELD = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "DependencyNeverSatisfied", "BadConstraints"})
_RESERVED = frozenset({"RESERVED", "MAINTENANCE"})
_FEATURES = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*(?:[&,][A-Za-z][A-Za-z0-9_.-]*)*")
_GPU = re.compile(r"gres/gpu(?::([A-Za-z0-9._-]+))?=")


@dataclass(frozen=True)
class Use:
    """What there is to say of a set of nodes.

    unused   whether no job has run on any of them for longer than was asked for, and none waits that could
    why      a sentence: who uses them, or since when nobody does
    """

    unused: bool
    why: str


def idle_since(node: Node | None, stays: Sequence[Stay]) -> int | None:
    """Since when a node has had no job, in Unix seconds; None where it has some, or nobody can say.

    node    None of one that slurmctld does not know: it is idle since it left
    stays   of the node, in the book; a node that has just come is idle since then
    """
    if node is None:
        return left(stays)
    if node.busy:
        return None
    return max(node.last_busy, joined(stays) or 0) or None


def use(
    names: Sequence[str],
    nodes: Mapping[str, Node],
    jobs: Sequence[Job],
    book: Mapping[str, Sequence[Stay]],
    *,
    minutes: int,
    now: float,
    expand: Expand,
) -> Use:
    """Return whether nodes have been unused for longer than `minutes`.

    names    of the nodes
    nodes    of the cluster, by name
    expand   makes names of Slurm's short form of them
    """
    own = [nodes[name] for name in names if name in nodes]
    for job in jobs:
        if job.runs and (on := {*expand(job.nodes)} & {*names}):
            return Use(False, f"job {job.title} of {job.user} is on {min(on)}")
    for node in own:
        if node.busy:
            return Use(False, f"{node.name} has jobs")
        if node.flags & _RESERVED:
            return Use(False, f"{node.name} is reserved")
    for job in jobs:
        if job.waits and could_run(job, own, minutes=minutes, now=now, expand=expand):
            return Use(False, f"job {job.title} of {job.user} waits ({job.reason}) and could run there")
    since = {name: idle_since(nodes.get(name), book.get(name, ())) for name in names}
    for name, moment in since.items():
        if moment is None:
            what = "since when it is idle" if name in nodes else "it, and it never was in the cluster"
            return Use(False, f"{name}: slurmctld does not know {what}")
    youngest = max(since, key=lambda name: since[name] or 0)
    idle = int(now - (since[youngest] or 0)) // 60
    if idle <= minutes:
        return Use(False, f"{youngest} has been idle for {max(idle, 0)} min, and may be for {minutes}")
    whose = f"all {len(names)} nodes have" if len(names) > 1 else f"{youngest} has"
    return Use(True, f"{whose} been idle for {idle} min or more, longer than {minutes}")


def could_run(job: Job, nodes: Sequence[Node], *, minutes: int, now: float, expand: Expand) -> bool:
    """Whether a job that waits could begin on one of the nodes before long. Where that is not certain, it could."""
    if job.reason in _HELD or job.begin > now + 60 * minutes:
        return False
    wanted = {*expand(job.needs)} if job.needs else set()
    return any((not wanted or node.name in wanted) and _fits(job, node) for node in nodes)


def _fits(job: Job, node: Node) -> bool:
    if node.partitions and not {*job.partition.split(",")} & node.partitions:
        return False
    # Anything but a plain list of features may be met in more ways than one.
    if _FEATURES.fullmatch(job.features) and not {*re.split("[&,]", job.features)} <= node.features:
        return False
    kinds = {kind.partition(":")[0] for kind in node.gpus.split(", ") if kind}
    asked = _GPU.findall(job.asked)
    return not asked or (bool(kinds) and all(not kind or kind in kinds for kind in asked))
