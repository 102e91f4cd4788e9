"""Write the report about a job: its state, why it ended, its run time and its GPU hours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from components.roles.job_reports.events import Event
from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.slurm import SlurmError
from components.roles.tailrack_command.why import as_text, explain, hang_of
from components.validation.preflight.findings import plain

_GPUS = re.compile(r"(?:^|,)gres/gpu=([0-9]{1,6})(?:,|$)")
_MOST_TASKS = 5
_LONGEST_NAME = 60
_LONGEST_SUBJECT = 150


@dataclass(frozen=True)
class Report:
    """A report: one line, and the text. Both contain only printable characters and line breaks of ours."""

    user: str
    title: str
    text: str


def write_report(event: Event, find_jobs: Callable[[str], Sequence[Job]] = slurm.jobs) -> Report:
    """Return the report. If Slurm does not answer or has forgotten the job, it contains slurmctld's own sentence."""
    try:
        if report := _of_jobs(event, [_ended(job) for job in find_jobs(event.job)]):
            return report
    except SlurmError:
        pass
    sentence = plain(event.subject)
    return Report(event.user, _line(sentence), f"{sentence}\n\nTo see why, run: tailrack why {event.job}")


def _of_jobs(event: Event, jobs: Sequence[Job]) -> Report | None:
    if event.summary:
        return _about_array(event, jobs) if jobs else None
    # For the number of an array's last task Slurm returns all its tasks.
    job = next((job for job in jobs if str(job.number) == event.job), None)
    return Report(job.user, _line(f"job {job.title} ({_name(job)}) {_state(job)}"), _text(job)) if job else None


def _ended(job: Job) -> Job:
    """Return a job without the flag that its nodes are still cleaning up, which hides how it ended."""
    return replace(job, flags=(job.state,)) if "COMPLETING" in job.flags and job.state != "RUNNING" else job


def _about_array(event: Event, jobs: Sequence[Job]) -> Report:
    counts = Counter(_state(job) for job in jobs)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    bad = [job for job in jobs if job.state != "COMPLETED"]
    parts = [f"array {event.job} ({_name(jobs[0])}) of {jobs[0].user}: {states}", *map(_text, bad[:_MOST_TASKS])]
    if len(bad) > _MOST_TASKS:
        parts.append(f"and {len(bad) - _MOST_TASKS} more tasks; to see them: tailrack why {event.job}")
    return Report(jobs[0].user, _line(f"array {event.job} ({_name(jobs[0])}): {states}"), "\n\n".join(parts))


def _text(job: Job) -> str:
    nodes = slurm.nodes() if job.waits else []
    lines = [as_text(job, explain(job, nodes))]
    if job.start and job.end >= job.start and not job.waits and not job.runs:
        lines.append(plain(f"  Run time: {_duration(job.end - job.start)}{f' on {job.nodes}' if job.nodes else ''}."))
        if match := _GPUS.search(job.resources):
            hours = int(match[1]) * (job.end - job.start) / 3600
            lines.append(f"  GPU hours: {hours:.2f} ({match[1]} GPU{'s' if match[1] != '1' else ''}).")
    return "\n".join(lines)


def _name(job: Job) -> str:
    return job.name if len(job.name) <= _LONGEST_NAME else f"{job.name[: _LONGEST_NAME - 3]}..."


def _state(job: Job) -> str:
    return "seems to hang" if hang_of(job) else job.state.lower().replace("_", " ")


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days} days {clock}" if days else clock


def _line(text: str) -> str:
    return plain(text)[:_LONGEST_SUBJECT]
