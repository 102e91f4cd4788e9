"""Metrics of the GPUs of running jobs, as role usage recorded them. Pure.

Only these series name jobs and users. A job has three of them while it runs, once it has a record of its GPUs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from components.roles.monitoring.exposition import Metric, Sample
from components.roles.tailrack_command.job import Job
from components.roles.usage.summary import read_summary

# Those with the most unused GPUs, and then with the most GPUs.
MOST_JOBS = 100


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
