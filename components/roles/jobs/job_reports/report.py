"""Read the events that slurmctld's MailProg has left, and write the reports about their jobs.

A report has the job's state, why it ended, its run time and its GPU hours. The files of events are untrusted.
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from components.roles.commands.tailrack.why import as_text, explain, hang_of
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job
from components.slurm_commands.slurm import SlurmError
from components.validation.preflight.findings import plain

_MOST_BYTES = 16384
_NUMBER = re.compile(r"[0-9]{1,10}")
_SUBJECT = re.compile(
    r"Slurm (Array Summary )?(?:Array Task )?Job_id=([0-9]{1,10})(?:_[0-9*]{1,10} \(([0-9]{1,10})\))?"
)
_USER = re.compile(r"[a-z][a-z0-9_-]{0,31}")
# The form that job_submit.lua allows. It contains nothing that SMTP or a mail header gives a meaning.
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,63}@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
# A job can name many addresses.
MOST_RECEIVERS = 5
_GPUS = re.compile(r"(?:^|,)gres/gpu=([0-9]{1,6})(?:,|$)")
_MOST_TASKS = 5
_LONGEST_NAME = 60
_LONGEST_SUBJECT = 150


@dataclass(frozen=True)
class Event:
    """One message that slurmctld wants to send.

    job       the job's number, or the array's for the summary of an array
    user      the job's user as slurmctld names it; empty before Slurm 23.11
    to        the text of --mail-user
    subject   slurmctld's sentence. It contains the job's name, which a user chose
    summary   whether it is about a whole array
    """

    job: str
    user: str
    to: str
    subject: str
    summary: bool = False


def event_files(spool: Path) -> list[Path]:
    """Return the files of events, oldest first."""
    with os.scandir(spool) as entries:
        names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    return [spool / name for name in sorted(names) if name.endswith(".event")]


def read_event(path: Path) -> Event | None:
    """Return an event; None if the file has another form."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            fields = stream.read(_MOST_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return None
    if len(fields) != 5:
        return None
    job, user, to, subject, _ = fields
    match = _SUBJECT.match(subject)
    if match and match[1]:
        job = match[2]
    elif not _NUMBER.fullmatch(job):
        # A task of an array has two numbers: `Job_id=12_3 (15)`.
        job = match[3] or match[2] if match else ""
    if not job:
        return None
    return Event(job, user if _USER.fullmatch(user) else "", to, subject, bool(match and match[1]))


def remove_event(path: Path) -> None:
    """Remove the file of an event."""
    with suppress(FileNotFoundError):
        path.unlink()


def receivers_of(to: str, user: str, notify: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield mail addresses and names of channels, each once.

    The name of the job's user stands for the receivers in the config. Other accounts' names do not, so that no one can
    write to another user's channel.
    """
    found: dict[str, None] = {}
    for word in to.split(","):
        if word == user:
            found |= dict.fromkeys(notify.get(user, ()))
        elif _ADDRESS.fullmatch(word):
            found[word] = None
    yield from list(found)[:MOST_RECEIVERS]


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
