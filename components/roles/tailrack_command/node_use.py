"""Decide whether nodes are unused, and for how long. Pure: reads slurmctld's data and the cost ledger."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from components.roles.tailrack_command.book import Stay, joined, left
from components.roles.tailrack_command.job import Job
from components.validation.slurm_nodes import Node

Expand = Callable[[str], Sequence[str]]
# Reasons of jobs that do not start until somebody changes something.
_HELD = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "DependencyNeverSatisfied", "BadConstraints"})
_RESERVED = frozenset({"RESERVED", "MAINTENANCE"})
_FEATURES = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*(?:[&,][A-Za-z][A-Za-z0-9_.-]*)*")
_GPU = re.compile(r"gres/gpu(?::([A-Za-z0-9._-]+))?=")


@dataclass(frozen=True)
class Use:
    """The use of a set of nodes.

    unused   whether none of them has run a job for the given time, and no waiting job could run on them
    why      a sentence: which job uses them, or how long they have been idle
    """

    unused: bool
    why: str


def idle_since(node: Node | None, stays: Sequence[Stay]) -> int | None:
    """Return when a node's last job ended, in Unix seconds; None if it has jobs or the time is unknown.

    node    None if slurmctld does not know the node; it has been idle since it left
    stays   the node's entries in the ledger; a node without jobs has been idle since it joined
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

    names    the nodes
    nodes    all nodes of the cluster, by name
    expand   turns Slurm's short form of node names into names
    """
    chosen = [nodes[name] for name in names if name in nodes]
    for job in jobs:
        if job.runs and (used := {*expand(job.nodes)} & {*names}):
            return Use(False, f"job {job.title} of {job.user} is on {min(used)}")
    for node in chosen:
        if node.busy:
            return Use(False, f"{node.name} has jobs")
        if node.flags & _RESERVED:
            return Use(False, f"{node.name} is reserved")
    for job in jobs:
        if job.waits and could_run(job, chosen, minutes=minutes, now=now, expand=expand):
            return Use(False, f"job {job.title} of {job.user} waits ({job.reason}) and could run there")
    since = {name: idle_since(nodes.get(name), book.get(name, ())) for name in names}
    for name, moment in since.items():
        if moment is None or moment > now:
            unknown = "how long it has been idle" if name in nodes else "it, and it was never in the cluster"
            return Use(False, f"{name}: slurmctld does not know {unknown}")
    youngest = max(since, key=lambda name: since[name] or 0)
    idle = int(now - (since[youngest] or 0)) // 60
    if idle <= minutes:
        return Use(False, f"{youngest} has been idle for {max(idle, 0)} min; the limit is {minutes} min")
    subject = f"all {len(names)} nodes have" if len(names) > 1 else f"{youngest} has"
    return Use(True, f"{subject} been idle for at least {idle} min; the limit is {minutes} min")


def could_run(job: Job, nodes: Sequence[Node], *, minutes: int, now: float, expand: Expand) -> bool:
    """Return whether a waiting job could soon start on one of the nodes. If that is uncertain, it could."""
    if job.reason in _HELD or job.begin > now + 60 * minutes:
        return False
    wanted = {*expand(job.needs)} if job.needs else set()
    return any((not wanted or node.name in wanted) and _fits(job, node) for node in nodes)


def _fits(job: Job, node: Node) -> bool:
    if node.partitions and not {*job.partition.split(",")} & node.partitions:
        return False
    # Only a plain list of features can be compared; other expressions may match in several ways.
    if _FEATURES.fullmatch(job.features) and not {*re.split("[&,]", job.features)} <= node.features:
        return False
    kinds = {kind.partition(":")[0] for kind in node.gpus.split(", ") if kind}
    wanted = _GPU.findall(job.resources)
    return not wanted or (bool(kinds) and all(not kind or kind in kinds for kind in wanted))
