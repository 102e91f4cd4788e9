"""Metrics of slurmctld's nodes, jobs and GPUs, by partition and state. Pure. They name no user and no job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from components.roles.job_hangs.line import read_hang
from components.roles.monitoring.exposition import Metric
from components.roles.sll.snapshot import gpus_of
from components.roles.tailrack_command.job import Job
from components.roles.usage.summary import read_summary
from components.validation.slurm_nodes import Node

NODE_STATES = ("idle", "mixed", "allocated", "completing", "draining", "drained", "down", "unknown")
JOB_STATES = ("pending", "running", "suspended", "completing")
NO_PARTITION = "none"
# A limit, because root of a node can create partitions in slurmctld.
MOST_PARTITIONS = 100


def slurm_figures(jobs: Iterable[Job], nodes: Sequence[Node]) -> list[Metric]:
    """Return the metrics of all partitions. States without nodes or jobs are 0, so that graphs have no gaps."""
    partitions = sorted({name for node in nodes for name in node.partitions})[:MOST_PARTITIONS]
    node_counts = Counter((name, node_state(node)) for node in nodes for name in node.partitions)
    jobs = list(jobs)
    job_counts = Counter((_partition(job, partitions), job_state(job)) for job in jobs if job.waits or job.runs)
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
        Metric("tailrack_slurm_gpus", "GPUs of all nodes.", [({}, sum(gpus_in(node.gpus) for node in nodes))]),
        Metric(
            "tailrack_slurm_gpus_in_use",
            "GPUs that jobs have.",
            [({}, sum(gpus_of(job.resources) for job in jobs if job.runs))],
        ),
        Metric(
            "tailrack_slurm_gpus_unused",
            "GPUs that running jobs have and have not used for 10 minutes or more; without accounting, 0.",
            [({}, sum(_unused(job) for job in jobs if job.runs))],
        ),
        Metric(
            "tailrack_slurm_jobs_hanging",
            "Running jobs that seem to hang; without tailrack:job_hangs, 0.",
            [({}, sum(read_hang(job.admin_comment, job.start) is not None for job in jobs if job.runs))],
        ),
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


def gpus_in(kinds: str) -> int:
    """Return the number of GPUs in `h200:8, a100:4`."""
    return sum(int(kind.rpartition(":")[2]) for kind in kinds.split(", ") if kind)


def _unused(job: Job) -> int:
    held = read_summary(job.admin_comment)
    return held.unused if held else 0


def _partition(job: Job, partitions: Sequence[str]) -> str:
    return next((name for name in job.partition.split(",") if name in partitions), NO_PARTITION)
