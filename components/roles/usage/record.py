"""The command `job-gpu-use` on the head node: write the use of jobs' GPUs into Slurm's AdminComment.

    job-gpu-use [--now]    as root, once a minute by a timer; --now updates running jobs too (else every five minutes)

It asks only nodes that have a job with GPUs, or had one that ended in the last minutes. slurmctld keeps the text of
running jobs, for `sll` and `tailrack why`; slurmdbd gets that of ended jobs, for `sacct`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import Any, TypeVar

from components.node import files
from components.node.run import attempt
from components.node.state import STATE_DIR
from components.roles.job_hangs.line import read_hang
from components.roles.sll.query import jobs_and_nodes
from components.roles.sll.snapshot import gpus_of
from components.roles.ssh_trust.ask import ask, asking_key
from components.roles.tailrack_command.book import Stay, read_book, spent
from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.slurm import SlurmError
from components.roles.usage.paths import ANSWER, RECORDED
from components.roles.usage.samples import Use
from components.roles.usage.summary import Summary, summary, with_summary
from components.roles.usage.unused import apply_limits, read_limits
from components.validation.node_names import node_names
from components.validation.preflight.findings import plain
from components.validation.slurm_nodes import Node

AT_ONCE = 16
LIMIT_SECONDS = 30
# Running jobs are updated in every fifth minute, so that a large cluster answers few requests.
MINUTES = 5
# slurmctld forgets an ended job after five minutes: a node that has not answered until then is left out.
WAIT_SECONDS = 180
# Nodes keep the samples of an ended job for this time.
KEEP_SECONDS = 3600
T = TypeVar("T")
Book = Mapping[str, Sequence[Stay]]
Answers = Mapping[str, Mapping[str, Use]]


def main(arguments: Sequence[str]) -> int:
    """Update running jobs and record ended ones."""
    now = time.time()
    try:
        jobs, nodes, _ = jobs_and_nodes()
    except SlurmError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    all_jobs = "--now" in arguments or int(now / 60) % MINUTES == 0
    recorded = {*files.lines(RECORDED)}
    due = [job for job in jobs if is_due(job, recorded, now, running=all_jobs)]
    if not due:
        return 0
    names = sorted({name for job in due for name in _names(job)})
    answers = ask_nodes([name for name in names if name in {node.name for node in nodes}])
    book, gpus = read_book(), gpus_by_node(nodes)
    ended: list[tuple[Job, str]] = []
    running: list[tuple[Job, Summary]] = []
    for job in due:
        new = summary_of(job, answers, gpus, book, now)
        if new.running:
            text = with_summary(job.admin_comment, new)
            attempt("scontrol", "update", f"jobid={job.title}", f"admincomment={text}", limit=LIMIT_SECONDS)
            running.append((job, new))
        elif all(str(job.number) in answers.get(name, {}) for name in _names(job)) or now - job.end > WAIT_SECONDS:
            ended.append((job, with_summary(job.admin_comment, new)))
    if running and (limits := read_limits()) is not None:
        apply_limits(limits, running, jobs)
    new_marks = record(ended)
    if new_marks:
        known = {_mark(job) for job in jobs}
        files.write(RECORDED, "\n".join(sorted({*recorded, *new_marks} & known)), 0o600)
    return 0


def is_due(job: Job, recorded: Container[str], now: float, *, running: bool) -> bool:
    """Return whether a job needs a new summary. `running`: also if it has not ended."""
    if not gpus_of(job.allocated) or not job.start or not job.nodes or job.waits or "COMPLETING" in job.flags:
        return False
    if job.runs:
        return running
    return now - job.end < KEEP_SECONDS and _mark(job) not in recorded


def _mark(job: Job) -> str:
    """Return a line that is another one for each run of a requeued job."""
    return f"{job.number} {job.end}"


def summary_of(job: Job, answers: Answers, gpus: Mapping[str, int], book: Book, now: float) -> Summary:
    """Return a job's summary from its nodes' answers.

    gpus   number of GPUs of each node; a job pays its share of the node's price
    """
    end = now if job.runs else job.end
    names, use, costs = _names(job), Use(), dict[str, float]()
    total, seconds = _held(job, end)
    for name in names:
        here = answers.get(name, {}).get(str(job.number), Use(gpus=total // len(names)))
        use = use.plus(here)
        share = min(1.0, here.gpus / gpus[name]) if gpus.get(name) else 0.0
        for unit, amount in spent(book.get(name, ()), job.start, end).items():
            costs[unit] = costs.get(unit, 0.0) + amount * share
    use = use.in_hang if read_hang(job.admin_comment, job.start) else use
    return summary(use, total, seconds, costs, running=job.runs)


def _held(job: Job, end: float) -> tuple[int, float]:
    """Return how many GPUs Slurm gave a job, and for how many seconds until `end`."""
    return gpus_of(job.allocated), end - job.start


def gpus_by_node(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the number of GPUs of each node."""
    kinds = {node.name: [kind for kind in node.gpus.split(", ") if kind] for node in nodes}
    return {name: sum(int(kind.rpartition(":")[2]) for kind in parts) for name, parts in kinds.items()}


def record(ended: Iterable[tuple[Job, str]]) -> list[str]:
    """Write summaries of ended jobs to slurmdbd, and return the marks of those that it has.

    slurmctld changes no job that has ended.
    """
    jobs = list(ended)
    if not jobs:
        return []
    # Before slurmdbd has a job's end, slurmctld's record of the end would replace the text.
    numbers = ",".join(job.title for job, _ in jobs)
    shown = attempt("sacct", "-n", "-P", "-X", "-j", numbers, "-o", "JobIDRaw,End", limit=LIMIT_SECONDS)
    rows = (line.partition("|") for line in shown.output.splitlines())
    known = {number for number, _, end in rows if end != "Unknown"}
    marks = []
    for job, text in jobs:
        if str(job.number) not in known:
            continue
        where = ("modify", "job", "where", f"jobid={job.title}", "set", f"admincomment={text}")
        done = attempt("sacctmgr", "-i", *where, limit=LIMIT_SECONDS, keep_errors=True)
        if done.ok:
            marks.append(_mark(job))
        else:
            sys.stderr.write(f"slurmdbd does not take the GPU use of job {job.title}: {plain(done.errors)}\n")
    return marks


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
        rows: Mapping[str, Mapping[str, Any]] = json.loads(text)["jobs"]
        return {str(job): Use(**{name: _count(number) for name, number in row.items()}) for job, row in rows.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _count(number: object) -> int:
    if type(number) is not int or not 0 <= number < 2**40:
        raise ValueError
    return number


def _names(job: Job) -> list[str]:
    try:
        return node_names(job.nodes)
    except ValueError:
        return []
