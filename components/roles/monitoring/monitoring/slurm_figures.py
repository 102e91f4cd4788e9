"""Metrics of slurmctld's nodes, jobs and GPUs, and of costs. Pure.

Only the GPUs of jobs name jobs and users. A job has three series while it runs, once it has a record of its GPUs.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from components.roles.commands.sll.snapshot import gpus_of
from components.roles.commands.tailrack.costs import Cost
from components.roles.jobs.job_hangs.communicators import read_hang
from components.roles.monitoring.budget.spending import FULL, Spending
from components.roles.monitoring.usage.samples import read_summary
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import Node
from components.validation.preflight.findings import plain

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Metric:
    """Samples with the same name. Label values may be any text.

    help   a description with the unit
    """

    name: str
    help: str
    samples: Sequence[Sample]
    kind: Literal["gauge", "counter"] = "gauge"


def exposition(metrics: Iterable[Metric]) -> str:
    """Return the text, one line per sample. Metrics without samples are left out."""
    lines = []
    for metric in metrics:
        if metric.samples:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [f"{metric.name}{_labels(labels)} {float(value)!r}" for labels, value in metric.samples]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    text = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{text}}}" if text else ""


def _quoted(text: str) -> str:
    # A lone surrogate is not valid UTF-8, and node exporter would skip the whole file.
    valid = plain(text).encode("utf-8", "replace").decode("utf-8")
    return valid.replace("\\", "\\\\").replace('"', '\\"')


NODE_STATES = ("idle", "mixed", "allocated", "completing", "draining", "drained", "down", "unknown")
JOB_STATES = ("pending", "running", "suspended", "completing")
NO_PARTITION = "none"
# A limit, because root of a node can create partitions in slurmctld.
MOST_PARTITIONS = 100
# Those with the most unused GPUs, and then with the most GPUs.
MOST_JOBS = 100


def slurm_figures(jobs: Iterable[Job], nodes: Sequence[Node]) -> list[Metric]:
    """Return the metrics of all partitions. States without nodes or jobs are 0, so that graphs have no gaps."""
    partitions = sorted({name for node in nodes for name in node.partitions})[:MOST_PARTITIONS]
    node_counts = Counter((name, node_state(node)) for node in nodes for name in node.partitions)
    jobs = list(jobs)
    job_counts = Counter((_partition(job, partitions), job_state(job)) for job in jobs if job.waits or job.runs)
    running = [job for job in jobs if job.runs]
    hanging = [job for job in running if read_hang(job.admin_comment, job.start)]
    unused = "GPUs that running jobs have and have not used for 10 minutes or more; without accounting, 0."
    # A node has `h200:8, a100:4`.
    gpus = sum(int(kind.rpartition(":")[2]) for node in nodes for kind in node.gpus.split(", ") if kind)
    totals = (
        ("tailrack_slurm_gpus", "GPUs of all nodes.", gpus),
        ("tailrack_slurm_gpus_in_use", "GPUs that jobs have.", sum(gpus_of(job.resources) for job in running)),
        ("tailrack_slurm_gpus_unused", unused, sum(map(_unused, running))),
        ("tailrack_slurm_jobs_hanging", "Running jobs that seem to hang; without tailrack:job_hangs, 0.", len(hanging)),
    )
    names = [*partitions, *([NO_PARTITION] if any(name == NO_PARTITION for name, _ in job_counts) else [])]
    return [
        Metric(
            "tailrack_slurm_nodes",
            "Nodes of a partition in a state.",
            [
                ({"partition": name, "state": state}, node_counts[name, state])
                for name in partitions
                for state in NODE_STATES
            ],
        ),
        Metric(
            "tailrack_slurm_node_out",
            "1 if a node gets no new jobs: it is drained, down or does not answer.",
            [({"node": node.name}, int(node.out)) for node in nodes],
        ),
        Metric(
            "tailrack_slurm_jobs",
            "Jobs of a partition in a state; a job that waits for several partitions counts for the first.",
            [({"partition": name, "state": state}, job_counts[name, state]) for name in names for state in JOB_STATES],
        ),
        *(Metric(name, about, [({}, total)]) for name, about, total in totals),
    ]


def node_state(node: Node) -> str:
    """Return one of NODE_STATES."""
    if node.flags & {"DOWN", "NOT_RESPONDING", "POWERED_DOWN"} and (node.out or not node.is_placeholder):
        return "down"
    if node.out:
        return "draining" if node.busy else "drained"
    busy = next((word for word in ("COMPLETING", "ALLOCATED", "MIXED", "IDLE") if word in node.flags), "UNKNOWN")
    return busy.lower()


def job_state(job: Job) -> str:
    """Return one of JOB_STATES."""
    if not job.runs:
        return "pending"
    return next((word.lower() for word in ("SUSPENDED", "COMPLETING") if word in job.flags), "running")


def _unused(job: Job) -> int:
    held = read_summary(job.admin_comment)
    return held.unused if held else 0


def _partition(job: Job, partitions: Sequence[str]) -> str:
    return next((name for name in job.partition.split(",") if name in partitions), NO_PARTITION)


def job_gpu_figures(jobs: Iterable[Job], exempt: Container[str] = ()) -> list[Metric]:
    """Return the metrics of running jobs.

    exempt   QOS whose jobs may hold unused GPUs (accounting.unused_gpus.exempt_qos)
    """
    recorded = [(job, held) for job in jobs if job.runs and (held := read_summary(job.admin_comment)) and held.running]
    recorded.sort(key=lambda pair: (-pair[1].unused, -pair[1].gpus, pair[0].number))
    gpus: list[Sample] = []
    unused: list[Sample] = []
    used: list[Sample] = []
    for job, held in recorded[:MOST_JOBS]:
        # Prometheus' own label `job` is another thing.
        labels = {"slurm_job": job.title, "user": job.user}
        gpus.append((labels, held.gpus))
        unused.append((labels, 0 if job.qos in exempt else held.unused))
        if held.percent is not None:
            used.append((labels, held.percent / 100))
    return [
        Metric("tailrack_slurm_job_gpus", "GPUs that a running job has.", gpus),
        Metric(
            "tailrack_slurm_job_gpus_unused",
            "GPUs that a running job has and has not used for 10 minutes or more; 0 in an exempt QOS.",
            unused,
        ),
        Metric(
            "tailrack_slurm_job_gpu_utilization_ratio",
            "Mean utilization of a running job's GPUs since its start, 0 to 1.",
            used,
        ),
    ]


def cost_figures(costs: Iterable[Cost], head: str, idle_hours: int) -> list[Metric]:
    """Return the metrics of nodes with a price; for nodes that left this month, only their cost.

    head         left out of the idle times, because no other node can work without it
    idle_hours   idle time after which an alert fires
    """
    rows = [*costs]
    present = [row for row in rows if row.there]
    idle = [({"node": row.name}, row.idle_seconds or 0) for row in present if row.name != head]
    return [
        Metric(
            "tailrack_node_price_per_hour",
            "Price of a node per hour in the config, in its currency.",
            [({"node": row.name, "currency": row.currency}, row.price) for row in present],
        ),
        Metric(
            "tailrack_node_cost_this_month",
            "Cost of a node since the first of the month (UTC), in its currency; also for nodes that have left.",
            [({"node": row.name, "currency": row.currency}, row.month) for row in rows],
        ),
        Metric(
            "tailrack_node_idle_seconds",
            "Time since a node with a price had a job; 0 if it has one. Without the head node.",
            idle,
        ),
        Metric(
            "tailrack_node_idle_limit_seconds",
            "Idle time after which an alert fires.",
            [({}, idle_hours * 3600)] if idle else [],
        ),
    ]


def budget_figures(seen: Spending | None) -> list[Metric]:
    """Return the spent share and the share at which an alert fires; none without a budget."""
    if seen is None:
        return []
    spent = seen.amount / seen.budget.per_month
    return [
        Metric("tailrack_budget_spent_ratio", "Share of this month's budget (UTC) that is spent.", [({}, spent)]),
        Metric("tailrack_budget_tell_ratio", "Spent share at which an alert fires.", [({}, seen.budget.tell / FULL)]),
    ]
