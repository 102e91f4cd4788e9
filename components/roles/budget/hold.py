"""Hold waiting jobs while the budget is spent, and release them afterwards.

job_submit.lua holds new jobs, so that none starts before this program looks, and lets no user release one. A marked job
without a hold was released by an administrator and is left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from components.node import files
from components.node.run import attempt
from components.roles.budget.mark import HOLDS, has_mark, with_mark, without_mark
from components.roles.budget.paths import HOLDING, SPENT
from components.roles.budget.spending import Budget
from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.job import Job, read_jobs
from components.roles.tailrack_command.slurm import SlurmError

LIMIT_SECONDS = 60
# Jobs in one command.
_MOST = 100
# Measurements run in this folder of their account's home.
_MEASUREMENTS = "/.tailrack/"


def hold_jobs(budget: Budget) -> None:
    """Hold all waiting jobs except those that may start. Raise SlurmError."""
    files.write(HOLDING, "")
    files.write(SPENT, "")
    jobs = waiting_jobs()
    exempt = [job for job in jobs if is_exempt(job, budget) and has_mark(job.admin_comment)]
    _release(exempt)
    new = [job for job in jobs if job.reason not in HOLDS and not has_mark(job.admin_comment)]
    new = [job for job in new if not is_exempt(job, budget)]
    # One request for both: a killed program leaves no hold without a mark.
    _update(new, with_mark, "priority=0")


def release_jobs() -> bool:
    """Release the jobs that the budget holds. Return whether there were none. Raise SlurmError."""
    if not files.exists(HOLDING):
        return True
    files.remove(SPENT)
    held = [job for job in waiting_jobs() if has_mark(job.admin_comment)]
    _release(held)
    # slurmctld may just have accepted another one: only a look that finds none is the last.
    if not held:
        files.remove(HOLDING)
    return not held


def is_exempt(job: Job, budget: Budget) -> bool:
    """Return whether a job may start although the budget is spent."""
    measures = job.user_number == budget.measures and _MEASUREMENTS in job.output
    return job.qos in budget.exempt or measures


def waiting_jobs() -> list[Job]:
    """Return all jobs that wait. Raise SlurmError."""
    try:
        return [job for job in read_jobs(slurm.scontrol("show", "jobs", "--json")) if job.waits]
    except ValueError:
        raise SlurmError("scontrol does not print jobs as JSON; see 'scontrol show jobs --json'") from None


def _release(jobs: Iterable[Job]) -> None:
    """Release jobs, and then remove their marks: a killed program leaves no hold without a mark."""
    jobs = list(jobs)
    held = [job for job in jobs if job.reason in HOLDS]
    for numbers in _numbers(held):
        attempt("scontrol", "release", numbers, limit=LIMIT_SECONDS)
    if held:
        # A job that slurmctld did not release keeps its mark for the next run.
        still = {job.number for job in waiting_jobs() if job.reason in HOLDS}
        jobs = [job for job in jobs if job.number not in still]
    _update(jobs, without_mark)


def _update(jobs: Iterable[Job], change: Callable[[str], str], *words: str) -> None:
    """Change jobs' comments, with as few commands as possible."""
    groups = defaultdict[str, list[Job]](list)
    for job in jobs:
        groups[change(job.admin_comment)].append(job)
    for comment, group in groups.items():
        for numbers in _numbers(group):
            update = ("scontrol", "update", f"jobid={numbers}", f"admincomment={comment}", *words)
            attempt(*update, limit=LIMIT_SECONDS)


def _numbers(jobs: list[Job]) -> Iterator[str]:
    for begin in range(0, len(jobs), _MOST):
        yield ",".join(str(job.number) for job in jobs[begin : begin + _MOST])
