"""The snapshot of jobs and nodes for `sll`: one request to slurmctld for all jobs and one for all nodes."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from components.node.minute import shared_answer
from components.roles.commands.tailrack.elastic import Status, read_statuses, renting
from components.roles.commands.tailrack.wait_reason import Why, why_it_waits
from components.roles.monitoring.usage.samples import read_summary
from components.slurm_commands.jobs import Job, read_jobs
from components.slurm_commands.nodes import Node, node_names, read_nodes
from components.slurm_commands.slurm import SlurmError, scontrol
from components.validation.preflight.findings import plain

_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([0-9]+)")


# A waiting or running job, and the state of the cluster at one moment, as `sll --json` prints them.
Row = dict[str, Any]
Snapshot = dict[str, Any]


def snapshot(
    jobs: Iterable[Job], nodes: Sequence[Node], sites: Mapping[str, str], now: float, pools: Sequence[Status] = ()
) -> Snapshot:
    """Return a snapshot: running jobs first, the oldest at the top, then waiting ones.

    It has the `time` in Unix seconds; the number of `nodes` and of their `gpus`; the names of nodes that are `out`; and
    `error`, why the snapshot is old, or empty.

    sites   site of each node, by name; nodes without a site are missing
    pools   reports of elastic pools
    """
    nodes = [node for node in nodes if not node.unrented]
    out, all_names = [node for node in nodes if node.out], {node.name for node in nodes}
    running = sorted((job for job in jobs if job.runs), key=lambda job: (job.start, job.number))
    waiting = sorted((job for job in jobs if job.waits), key=lambda job: (job.number, job.task or 0))
    return {
        "time": now,
        "jobs": [_row(job, out, all_names, sites, pools, now) for job in (*running, *waiting)],
        "nodes": len(nodes),
        "out": [plain(node.name) for node in out],
        "gpus": sum(int(number) for node in nodes for number in re.findall(r":([0-9]+)(?:, |$)", node.gpus)),
        "error": "",
    }


def gpus_of(resources: str) -> int:
    """Return the GPUs of `cpu=2,gres/gpu=8,gres/gpu:h200=8`: the total, or the sum of all kinds without a total."""
    counts: list[tuple[str, str]] = _GPUS.findall(resources)
    total = [int(number) for kind, number in counts if not kind]
    return total[0] if total else sum(int(number) for _, number in counts)


def gpu_figures(admin_comment: str) -> tuple[str, str, str, str, str]:
    """Return a running job's use, idle share, memory, GPU hours and cost, as role usage recorded them.

    Figures without a record are empty.
    """
    held = read_summary(admin_comment)
    if held is None or not held.running:
        return "", "", "", "", ""
    costs = ", ".join(f"{amount:,.2f} {unit}" for unit, amount in sorted(held.costs.items()))
    if held.percent is None:
        return "", "", "", f"{held.hours:,.2f}", costs
    use = f"{held.percent} %{f', {held.unused} idle' if held.unused else ''}"
    return use, f"{held.idle} %", f"{held.memory:.1f} GiB", f"{held.hours:,.2f}", costs


def brief(why: Why) -> str:
    """Return the first sentence; if it ends with a colon, also the second."""
    first, *others = (" ".join(sentence.split()) for sentence in why.sentences)
    text = f"{first} {others[0]}" if first.endswith(":") and others else first
    return text.removeprefix("It ").rstrip(".")


def _row(
    job: Job,
    out: Sequence[Node],
    all_names: Collection[str],
    sites: Mapping[str, str],
    pools: Sequence[Status],
    now: float,
) -> Row:
    """Return a row, in which each text is one printable line.

    job      its id, `12_3` for a task of an array
    nodes    names in Slurm's short form; empty while it waits
    count    number of nodes that it requests or has
    gpus     number of GPUs in total
    gpu_use  how a running job uses its GPUs, such as `35 %` or `0 %, 2 idle`; empty if unknown
    gpu_idle, gpu_memory, gpu_hours, cost   so far: share of idle samples, most used memory of one GPU, hours, money
    start    Unix seconds; 0 while it waits
    sites    the sites of its nodes
    why      a sentence on why it waits; empty when it runs
    """
    names = _names(job.nodes)
    use, idle, memory, hours, cost = gpu_figures("" if job.waits else job.admin_comment)
    awaited = renting(names, pools, now) if job.configuring else []
    why = why_it_waits(job, out, _names, names=all_names) if job.waits else Why(tuple(awaited)) if awaited else None
    states = [job.state, *(flag for flag in job.flags[1:] if flag in ("COMPLETING", "CONFIGURING"))]
    return {
        "job": job.title,
        "name": plain(job.name),
        "user": plain(job.user or str(job.user_number)),
        "state": plain(states[-1].lower().replace("_", " ")),
        "nodes": plain(job.nodes),
        "count": job.node_count or len(names),
        "gpus": gpus_of(job.resources),
        "gpu_use": use,
        "gpu_idle": idle,
        "gpu_memory": memory,
        "gpu_hours": hours,
        "cost": cost,
        "start": 0 if job.waits else job.start,
        "sites": sorted({plain(sites[name]) for name in names if name in sites}),
        # Only the nodes that are out: the first sentence names no others, and all nodes for each job would be slow.
        "why": plain(brief(why)) if why else "",
    }


def _names(short: str) -> list[str]:
    """Return the node names; an empty list for a form that tailrack cannot read."""
    try:
        return node_names(short)
    except ValueError:
        return []


def query(now: float) -> Snapshot:
    """Return a snapshot with the jobs that this account may see. Raise SlurmError."""
    return snapshot(*jobs_and_nodes(), now, read_statuses())


def jobs_and_nodes() -> tuple[list[Job], list[Node], dict[str, str]]:
    """Return all jobs, all nodes and the nodes' sites. Raise SlurmError."""
    jobs, nodes = shared_answer(lambda: [scontrol("show", kind, "--json") for kind in ("jobs", "nodes")])
    try:
        listed = read_nodes(nodes)
        return read_jobs(jobs), listed, {node.name: node.site for node in listed if node.site}
    except ValueError:
        raise SlurmError(
            "scontrol does not print jobs or nodes as JSON here; see 'scontrol show jobs --json'"
        ) from None
