"""`tailrack idle NODE...`: show whether nodes are unused. `make reap` runs it before it destroys a pool."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from components.roles.monitoring.budget.spending import Stay, joined, left, read_book
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import Node, node_names
from components.slurm_commands.slurm import SlurmError

NAME, HELP = "idle", "show whether jobs use these nodes or wait for them, and how long they have been idle"
# The reason of a leaving node. Steps set the same one (components/roles/slurm/slurm/nodes.py).
REASON = "tailrack: leaves the cluster"
Expand = Callable[[str], Sequence[str]]
# Reasons of jobs that do not start until somebody changes something.
_HELD = frozenset({"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue", "DependencyNeverSatisfied", "BadConstraints"})
_RESERVED = frozenset({"RESERVED", "MAINTENANCE"})
_FEATURES = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*(?:[&,][A-Za-z][A-Za-z0-9_.-]*)*")
_GPU = re.compile(r"gres/gpu(?::([A-Za-z0-9._-]+))?=")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--minutes", type=int, default=0, help="nodes are unused if they have been idle for longer (default: 0)"
    )
    parser.add_argument("--take-out", action="store_true", help="drain the nodes if they are unused (root only)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("nodes", nargs="+", metavar="NODE")


def run(arguments: argparse.Namespace) -> int:
    """Print the result. The exit status is 0 whether the nodes are used or not."""
    if arguments.take_out and os.geteuid() != 0:
        raise SlurmError("only root can drain nodes: sudo tailrack idle --take-out ...")
    names = list(dict.fromkeys(arguments.nodes))
    result = check(names, arguments.minutes)
    if result.unused and arguments.take_out:
        result = take_out(names, arguments.minutes)
    print(json.dumps(asdict(result)) if arguments.json else f"{'unused' if result.unused else 'used'}: {result.why}")
    return 0


def check(names: Sequence[str], minutes: int) -> Use:
    """Ask slurmctld whether the nodes are used. Raise SlurmError if it does not answer."""
    nodes = {node.name: node for node in slurm.nodes()}
    jobs = slurm.all_jobs()
    for name in names:
        # A query for a single node gives its current state.
        if name in nodes and nodes[name].busy:
            nodes[name] = slurm.nodes(name)[0]
    try:
        return use(names, nodes, jobs, read_book(), minutes=minutes, now=time.time(), expand=node_names)
    except ValueError as error:
        raise SlurmError(f"a job's nodes cannot be read: {error}") from None


def take_out(names: Sequence[str], minutes: int) -> Use:
    """Drain the nodes and check again. If a job started in between, resume them."""
    nodes = {node.name: node for node in slurm.nodes()}
    active = [nodes[name] for name in names if name in nodes and not nodes[name].out]
    if not active:
        return check(names, minutes)
    slurm.scontrol("update", f"nodename={_listed(active)}", "state=drain", f"reason={REASON}")
    result = None
    try:
        result = check(names, minutes)
    finally:
        if result is None or not result.unused:
            slurm.scontrol("update", f"nodename={_listed(active)}", "state=resume")
    return result


def _listed(nodes: Sequence[Node]) -> str:
    return ",".join(node.name for node in nodes)


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
