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
from components.node.locks import PRIVATE, Lock
from components.roles.access.ssh_trust.ask import MEMBERS
from components.roles.commands.sll.snapshot import gpus_of, jobs_and_nodes
from components.roles.jobs.job_hangs.communicators import (
    CLOCK_SECONDS,
    EQUAL,
    KINDS,
    MOST_RANKS,
    NONE,
    PEER,
    Hang,
    Late,
    next_command,
    read_hang,
    sentence,
)
from components.roles.jobs.job_hangs.watch import ANSWER, Stall, apart
from components.roles.jobs.job_reports.host import MAIL_PROGRAM
from components.roles.monitoring.usage.job_gpu_use import ADMIN_COMMENT, ask_each, nodes_of
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job
from components.slurm_commands.slurm import SlurmError
from components.validation.untrusted import value_of

# The minutes, and a line `number start` for each job whose user got the message.
LIMITS = "/etc/tailrack/job-hangs-limits"
REPORTED = f"{PRIVATE}/job-hangs-reported"
FINDER = "/usr/local/lib/tailrack/job-hangs"
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
    names = sorted({name for job in held for name in nodes_of(job)} & members)
    stalls = ask_each(names, ANSWER, read_stalls) if names else {}
    addresses = {(files.read(f"{MEMBERS}/{name}/address") or "").strip(): name for name in names}
    reported = {*files.lines(REPORTED)}
    marks, due = reported & {_mark(job) for job in held}, list[tuple[Job, Hang]]()
    for job in held:
        here = {name: stalls.get(name, {}).get(str(job.number)) for name in nodes_of(job)}
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
        return value_of(Mapping[str, Stall], json.loads(text)["jobs"])  # type: ignore[no-any-return]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def note(job: Job, hang: Hang | None) -> None:
    """Write the hang into the job's AdminComment, or remove it."""
    if read_hang(job.admin_comment, 0) == hang:
        return
    # Role usage writes there too.
    with Lock(ADMIN_COMMENT):
        now = next((other for other in _again(job) if other.number == job.number), job)
        slurm.set_parts(now, hang=hang)


def report(job: Job, hang: Hang) -> None:
    """Tell the job's user."""
    message = f"{sentence(hang)} To see what to do, run: tailrack why {job.title}"
    sys.stderr.write(f"job {job.number} of uid {job.user_number} seems to hang: {next_command(job.title, hang)}\n")
    slurm.notify(job.title, f"tailrack: {message}")
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


def judge(stalls: Mapping[str, Stall | None], minutes: int, addresses: Mapping[str, str]) -> Hang | None:
    """Return the hang; None if a node does not answer, a GPU works, or RAS shows nothing or progress.

    stalls     by node; None of a node that does not answer
    addresses  nodes' names by tailnet address
    """
    known = {name: stall for name, stall in stalls.items() if stall is not None}
    if len(known) < len(stalls) or not known or any(stall.samples < minutes for stall in known.values()):
        return None
    # First sign: no GPU of the job has worked, and one waits.
    if not any(stall.waiting for stall in known.values()):
        return None
    # Second sign: RAS answered the same twice, far enough apart.
    found = [
        (KINDS.index(stall.finding.kind), name, stall.finding)
        for name, stall in known.items()
        if stall.finding and stall.unchanged >= apart(minutes)
    ]
    if not found:
        return None
    _, _, finding = min(found, key=lambda row: row[:2])
    since = max(stall.since for stall in known.values())
    idle = sum(stall.idle for stall in known.values())
    if finding.kind in (EQUAL, NONE) and idle and finding.size > 1:
        # RAS counts no sends and receives, in which some ranks may wait for those with an idle GPU.
        late = tuple(
            Late(rank.number, name, rank.gpu, rank.process)
            for name, stall in sorted(known.items())
            for rank in (stall.finding.ranks if stall.finding else ())
            if rank.here
        )[:MOST_RANKS]
        return Hang(since, PEER, size=finding.size, total=max(idle, len(late)), ranks=late)
    if finding.kind == NONE:
        return None
    nodes = {
        rank.program: name
        for name, stall in known.items()
        if stall.finding
        for rank in stall.finding.ranks
        if rank.here
    }
    # Those of EQUAL are ranks with an idle GPU.
    named = () if finding.kind == EQUAL else finding.ranks
    ranks = tuple(
        Late(rank.number, nodes.get(rank.program) or addresses.get(rank.host, rank.host), rank.gpu, rank.process)
        for rank in named
    )
    return Hang(since, finding.kind, finding.operation, finding.count, finding.most, finding.size, finding.total, ranks)
