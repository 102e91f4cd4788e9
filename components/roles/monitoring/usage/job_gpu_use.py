"""The command `job-gpu-use` on the head node: write the use of jobs' GPUs into Slurm's AdminComment.

    job-gpu-use [--now]    as root, once a minute as a task; --now updates running jobs too (else every five minutes)

It asks only nodes that have a job with GPUs, or had one that ended in the last minutes. slurmctld keeps the text of
running jobs, for `sll` and `tailrack why`; slurmdbd gets that of ended jobs, for `sacct`.

It also tells users whose jobs hold unused GPUs, and ends such jobs if tailrack:accounting.unused_gpus says so.
"""

import json
import sys
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TypeVar

from components.node import files
from components.node.locks import Lock
from components.node.log import STATE_DIR
from components.node.run import attempt
from components.node.waiting import within
from components.roles.access.ssh_trust.ask import ask, asking_key
from components.roles.commands.sll.snapshot import gpus_of, jobs_and_nodes
from components.roles.jobs.job_hangs.communicators import read_hang
from components.roles.monitoring.budget.spending import Stay, read_book, spent
from components.roles.monitoring.usage.samples import (
    ANSWER,
    CANCEL,
    RECORDED,
    TOLD,
    UNUSED_GPUS,
    UNUSED_SAMPLES,
    Summary,
    Use,
    idle_for,
    read_summary,
    summary,
)
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job, with_parts
from components.slurm_commands.nodes import Node, node_names
from components.slurm_commands.slurm import SlurmError
from components.validation.preflight.findings import plain
from components.validation.untrusted import read

AT_ONCE = 16
LIMIT_SECONDS = 30
# Running jobs are updated in every fifth minute, so that a large cluster answers few requests.
MINUTES = 5
# slurmctld forgets an ended job after five minutes: a node that has not answered until then is left out.
WAIT_SECONDS = 180
# Nodes keep the samples of an ended job for this time.
KEEP_SECONDS = 3600
# The lock of programs that read and write a job's AdminComment.
ADMIN_COMMENT = "admin-comment"
T = TypeVar("T")
Book = Mapping[str, Sequence[Stay]]
Answers = Mapping[str, Mapping[str, Use]]
# By a job's mark: its title and its final text.
Finals = Mapping[str, tuple[str, str]]


def main(arguments: Sequence[str]) -> int:
    """Update running jobs and record ended ones."""
    now = time.time()
    try:
        jobs, nodes, _ = jobs_and_nodes()
    except SlurmError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    all_jobs = "--now" in arguments or int(now / 60) % MINUTES == 0
    recorded = read_recorded(jobs, now)
    due = [job for job in jobs if is_due(job, recorded, now, running=all_jobs)]
    if not due and not recorded:
        return 0
    names = sorted({name for job in due for name in nodes_of(job)})
    answers = ask_nodes([name for name in names if name in {node.name for node in nodes}]) if names else {}
    book, gpus = read_book(), gpus_by_node(nodes)
    finals = {**recorded}
    running: list[tuple[Job, Summary]] = []
    for job in due:
        new = summary_of(job, answers, gpus, book, now)
        if new.running:
            running.append((job, new))
        elif not within(WAIT_SECONDS, job.end, now) or all(
            str(job.number) in answers.get(name, {}) for name in nodes_of(job)
        ):
            finals[_mark(job)] = (job.title, with_parts(job.admin_comment, use=new))
    if running:
        update(running)
    if running and (limits := read_limits()) is not None:
        apply_limits(limits, running, jobs)
    kept = record(finals, recorded, {_mark(job) for job in jobs})
    if kept != recorded:
        files.write(RECORDED, json.dumps(kept), 0o600)
    return 0


def update(running: Iterable[tuple[Job, Summary]]) -> None:
    """Write the summaries of running jobs into their AdminComments, to which role job_hangs writes too."""
    with Lock(ADMIN_COMMENT):
        try:
            now = {job.number: job for job in slurm.all_jobs()}
        except SlurmError:
            now = {}
        for job, new in running:
            slurm.set_parts(now.get(job.number, job), use=new)


def read_recorded(jobs: Iterable[Job], now: float) -> Finals:
    """Return the recorded summaries of ended jobs that slurmctld has, or had a minute ago."""
    try:
        rows = json.loads(files.read(RECORDED) or "{}").items()
    except (ValueError, AttributeError):
        return {}
    present = {str(job.number): _mark(job) for job in jobs}
    # A job that was requeued after its end has another mark.
    return {
        mark: (title, text)
        for mark, (title, text) in rows
        if present.get(mark.split()[0], mark) == mark and float(mark.split()[1]) > now - KEEP_SECONDS
    }


def is_due(job: Job, recorded: Container[str], now: float, *, running: bool) -> bool:
    """Return whether a job needs a new summary. `running`: also if it has not ended."""
    if not gpus_of(job.allocated) or not job.start or not job.nodes or job.waits or "COMPLETING" in job.flags:
        return False
    if job.runs:
        return running
    return job.end > now - KEEP_SECONDS and _mark(job) not in recorded


def _mark(job: Job) -> str:
    """Return a line that is another one for each run of a requeued job."""
    return f"{job.number} {job.end}"


def summary_of(job: Job, answers: Answers, gpus: Mapping[str, int], book: Book, now: float) -> Summary:
    """Return a job's summary from its nodes' answers.

    gpus   number of GPUs of each node; a job pays its share of the node's price
    """
    end = now if job.runs else job.end
    names, use, costs = nodes_of(job), Use(), dict[str, float]()
    total = gpus_of(job.allocated)
    for name in names:
        here = answers.get(name, {}).get(str(job.number), Use(gpus=total // len(names)))
        use = use.plus(here)
        share = min(1.0, here.gpus / gpus[name]) if gpus.get(name) else 0.0
        for unit, amount in spent(book.get(name, ()), job.start, end).items():
            costs[unit] = costs.get(unit, 0.0) + amount * share
    use = use.in_hang if read_hang(job.admin_comment, job.start) else use
    return summary(_since_resume(use, job, now), total, job.seconds(end), costs, running=job.runs)


def _since_resume(use: Use, job: Job, now: float) -> Use:
    """Return the use with the idle time since the last resume: the GPUs of a suspended job are idle by order."""
    resumed = use.unused_minutes if job.switched > now else int(now - job.switched) // 60
    minutes = 0 if job.suspended else min(use.unused_minutes, resumed)
    if minutes == use.unused_minutes:
        return use
    return replace(use, unused=use.unused if minutes >= UNUSED_SAMPLES else 0, unused_minutes=minutes)


def gpus_by_node(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the number of GPUs of each node."""
    kinds = {node.name: [kind for kind in node.gpus.split(", ") if kind] for node in nodes}
    return {name: sum(int(kind.rpartition(":")[2]) for kind in parts) for name, parts in kinds.items()}


def record(finals: Finals, recorded: Container[str], present: Container[str]) -> Finals:
    """Write summaries of ended jobs to slurmdbd, and return those that it has and slurmctld may still replace.

    slurmctld changes no job that has ended. Until it forgets the job, each of its reconfigurations sends slurmdbd the
    job again, with the text that the job had while it ran.

    recorded   marks of summaries that slurmdbd had before
    present    marks of the jobs that slurmctld has
    """
    if not finals:
        return {}
    numbers = ",".join(title for title, _ in finals.values())
    fields = "JobIDRaw,End,AdminComment"
    shown = slurm.sacct(numbers, fields)
    rows = {row[0]: row[1:] for line in shown.splitlines() if len(row := line.split("|", 2)) == 3}
    kept = {}
    for mark, (title, text) in finals.items():
        end, now = rows.get(mark.split()[0], ("Unknown", ""))
        has_text = (held := read_summary(now)) is not None and not held.running
        if has_text and mark not in present:
            continue
        # Before slurmdbd has a job's end, slurmctld's record of the end would replace the text.
        if has_text or (end != "Unknown" and _write(title, text)) or mark in recorded:
            kept[mark] = (title, text)
    return kept


def _write(title: str, text: str) -> bool:
    done = slurm.sacctmgr("-i", "modify", "job", "where", f"jobid={title}", "set", f"admincomment={text}")
    if not done.ok:
        sys.stderr.write(f"slurmdbd does not take the GPU use of job {title}: {plain(done.errors)}\n")
    return done.ok


def ask_nodes(names: Sequence[str]) -> dict[str, Mapping[str, Use]]:
    """Return the use of jobs' GPUs by node and job. Nodes that do not answer are missing."""
    return ask_each(names, ANSWER, read_answer)


def ask_each(names: Sequence[str], program: str, read: Callable[[str], T | None]) -> dict[str, T]:
    """Return nodes' answers by node. Nodes that do not answer are missing.

    program   the file of the answer on each node
    read      reads an answer; None if it is malformed
    """
    own_name = (files.read(f"{STATE_DIR}/node-name") or "").strip()

    def answer(name: str) -> T | None:
        local = name == own_name
        ended = attempt(program, limit=LIMIT_SECONDS, quiet=True) if local else ask(key, name, PurePath(program).name)
        return read(ended.output) if ended.ok else None

    with asking_key() as key, ThreadPoolExecutor(AT_ONCE) as pool:
        return {name: text for name, text in zip(names, pool.map(answer, names), strict=True) if text is not None}


def read_answer(text: str) -> Mapping[str, Use] | None:
    """Read a node's answer; None if it is malformed. Numbers outside of their range count as malformed."""
    try:
        return {job: read(Use, row, exact=True) for job, row in json.loads(text)["jobs"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def nodes_of(job: Job) -> list[str]:
    """Return the names of a job's nodes; none if they cannot be read."""
    try:
        return node_names(job.nodes)
    except ValueError:
        return []


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
    known = {_run_mark(job) for job in present if job.runs}
    marks, due = told & known, list[tuple[Job, str]]()
    for job, held in running:
        if job.suspended or job.qos in limits.exempt or not held.unused or held.minutes < limits.tell:
            marks.discard(_run_mark(job))
        # It ends only if it got the message before.
        elif limits.end and held.unused == held.gpus and held.minutes >= limits.end and _run_mark(job) in told:
            _notify(job, f"{idle_for(held)} tailrack ends this job, as tailrack:accounting.unused_gpus says.")
            slurm.end(job.title)
            sys.stderr.write(f"ended job {job.title} of uid {job.user_number}: unused GPUs for {held.minutes} min\n")
        elif _run_mark(job) not in told:
            later = f" After {limits.end} min without a used GPU it ends." if limits.end else ""
            due.append((job, f"{idle_for(held)} {CANCEL}{later}"))
            marks.add(_run_mark(job))
    # First the marks: on a full disk, a message would be repeated every five minutes.
    if marks != told:
        files.write(TOLD, "\n".join(sorted(marks)), 0o600)
    for job, message in due:
        _notify(job, message)


def _notify(job: Job, message: str) -> None:
    slurm.notify(job.title, f"tailrack: {message}")


def _run_mark(job: Job) -> str:
    return f"{job.number} {job.start}"
