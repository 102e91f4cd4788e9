"""The command `job-hangs` on the head node, a task of every minute, as root: note and report jobs that hang.

It asks only nodes that have a running job with GPUs. The user gets one message a job, by the receivers of job_reports
and in the job's stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from components.node import files
from components.node.accounts import as_user
from components.node.locks import Lock
from components.node.run import attempt
from components.roles.job_hangs.judge import judge
from components.roles.job_hangs.line import CLOCK_SECONDS, Hang, next_command, sentence, with_hang
from components.roles.job_hangs.paths import ANSWER, LIMITS, REPORTED
from components.roles.job_hangs.stall import Stall, stall_of
from components.roles.job_reports.paths import MAIL_PROGRAM
from components.roles.sll.query import jobs_and_nodes
from components.roles.sll.snapshot import gpus_of
from components.roles.ssh_trust.ask import MEMBERS
from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.slurm import SlurmError
from components.roles.usage.record import ADMIN_COMMENT, ask_each
from components.validation.node_names import node_names

LIMIT_SECONDS = 30
# A job with this word in its comment waits for requests, as a server does.
EXEMPT = "may-wait"
_SLURM = "slurm"


def main(_: Sequence[str]) -> int:
    """Search once."""
    minutes = (files.read(LIMITS) or "").strip()
    if not minutes:
        return 0
    try:
        jobs, nodes, _sites = jobs_and_nodes()
    except SlurmError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    held = [job for job in jobs if _has_gpus(job) and EXEMPT not in job.comment.replace(",", " ").split()]
    members = {node.name for node in nodes}
    names = sorted({name for job in held for name in _names(job)} & members)
    stalls = ask_each(names, ANSWER, read_stalls) if names else {}
    addresses = {(files.read(f"{MEMBERS}/{name}/address") or "").strip(): name for name in names}
    reported = {*files.lines(REPORTED)}
    marks, due = reported & {_mark(job) for job in held}, list[tuple[Job, Hang]]()
    for job in held:
        here = {name: stalls.get(name, {}).get(str(job.number)) for name in _names(job)}
        hang = judge(here, int(minutes), addresses)
        # Samples of a run before a requeue.
        hang = hang if hang and hang.since > job.start - CLOCK_SECONDS else None
        note(job, hang)
        if hang and _mark(job) not in reported:
            marks.add(_mark(job))
            due.append((job, hang))
    # First the marks: on a full disk, a report would be repeated every minute.
    if marks != reported:
        files.write(REPORTED, "\n".join(sorted(marks)), 0o600)
    for job, hang in due:
        report(job, hang)
    return 0


def read_stalls(text: str) -> Mapping[str, Stall] | None:
    """Read a node's answer; None if it is malformed."""
    try:
        return {str(job): stall_of(row) for job, row in json.loads(text)["jobs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def note(job: Job, hang: Hang | None) -> None:
    """Write the hang into the job's AdminComment, or remove it."""
    if with_hang(job.admin_comment, hang) == job.admin_comment:
        return
    # Role usage writes there too.
    with Lock(ADMIN_COMMENT):
        now = next((other for other in _again(job) if other.number == job.number), job)
        text = with_hang(now.admin_comment, hang)
        attempt("scontrol", "update", f"jobid={job.title}", f"admincomment={text}", limit=LIMIT_SECONDS)


def report(job: Job, hang: Hang) -> None:
    """Tell the job's user."""
    message = f"{sentence(hang)} To see what to do, run: tailrack why {job.title}"
    sys.stderr.write(f"job {job.number} of uid {job.user_number} seems to hang: {next_command(job.title, hang)}\n")
    # slurmd writes it as the job's user.
    attempt("scontrol", "notify", job.title, f"tailrack: {message}", limit=LIMIT_SECONDS, quiet=True)
    if files.exists(MAIL_PROGRAM):
        event = ("-s", f"Slurm Job_id={job.number} seems to hang", job.mail_user or job.user)
        environment = {"SLURM_JOB_ID": str(job.number), "SLURM_JOB_USER": job.user}
        # slurmctld's account owns the folder of events.
        as_user(_SLURM, MAIL_PROGRAM, *event, limit=LIMIT_SECONDS, environment=environment)


def _again(job: Job) -> list[Job]:
    try:
        return slurm.jobs(job.title)
    except SlurmError:
        return []


def _has_gpus(job: Job) -> bool:
    return bool(
        job.runs
        and not job.suspended
        and "COMPLETING" not in job.flags
        and job.start
        and job.nodes
        and gpus_of(job.allocated)
    )


def _mark(job: Job) -> str:
    """Return a line that is another one for each run of a requeued job."""
    return f"{job.number} {job.start}"


def _names(job: Job) -> list[str]:
    try:
        return node_names(job.nodes)
    except ValueError:
        return []
