"""Tell users whose jobs hold unused GPUs, and end such jobs if the config says so (tailrack:accounting.unused_gpus)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from components.node import files
from components.node.run import attempt
from components.roles.tailrack_command.job import Job
from components.roles.usage.paths import TOLD, UNUSED_GPUS
from components.roles.usage.summary import CANCEL, Summary, idle_for

LIMIT_SECONDS = 30


@dataclass(frozen=True)
class Limits:
    """The config's limits.

    tell     minutes after which a job with an unused GPU gets a message
    end      minutes after which a job without a used GPU ends; 0 for never
    exempt   QOS of jobs that are left alone
    """

    tell: int
    end: int
    exempt: frozenset[str]


def read_limits() -> Limits | None:
    """Return the limits; None if the config has none."""
    text = files.read(UNUSED_GPUS)
    if text is None:
        return None
    tell, end, exempt = json.loads(text)
    return Limits(tell, end, frozenset(exempt))


def apply_limits(limits: Limits, running: Iterable[tuple[Job, Summary]], present: Sequence[Job]) -> None:
    """Tell each job once while its GPUs stay unused, and end those over the limit.

    running   jobs with a new summary
    present   all jobs of slurmctld: the others are forgotten
    """
    told = {*files.lines(TOLD)}
    known = {_mark(job) for job in present if job.runs}
    marks, due = told & known, list[tuple[Job, str]]()
    for job, held in running:
        if job.suspended or job.qos in limits.exempt or not held.unused or held.minutes < limits.tell:
            marks.discard(_mark(job))
        # It ends only if it got the message before.
        elif _ends(limits, held) and _mark(job) in told:
            _notify(job, f"{idle_for(held)} tailrack ends this job, as tailrack:accounting.unused_gpus says.")
            attempt("scancel", job.title, limit=LIMIT_SECONDS)
            sys.stderr.write(f"ended job {job.title} of uid {job.user_number}: unused GPUs for {held.minutes} min\n")
        elif _mark(job) not in told:
            later = f" After {limits.end} min without a used GPU it ends." if limits.end else ""
            due.append((job, f"{idle_for(held)} {CANCEL}{later}"))
            marks.add(_mark(job))
    # First the marks: on a full disk, a message would be repeated every five minutes.
    if marks != told:
        files.write(TOLD, "\n".join(sorted(marks)), 0o600)
    for job, message in due:
        _notify(job, message)


def _ends(limits: Limits, held: Summary) -> bool:
    return bool(limits.end) and held.unused == held.gpus and held.minutes >= limits.end


def _notify(job: Job, message: str) -> None:
    """Write a line to the job's stderr. slurmd does it as the job's user."""
    attempt("scontrol", "notify", job.title, f"tailrack: {message}", limit=LIMIT_SECONDS, quiet=True)


def _mark(job: Job) -> str:
    return f"{job.number} {job.start}"
