"""`tailrack why JOBID`: explain in sentences why a job waits or how it ended, and name the next command."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from components.roles.job_hangs.line import Hang, next_command, read_hang
from components.roles.job_hangs.line import sentence as hang_sentence
from components.roles.pod_staging.record import NOT_IN, STAGED, Record, read_record
from components.roles.sll.snapshot import gpus_of
from components.roles.slurm.end_jobs import read_cause
from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.elastic_status import Status, read_statuses, renting
from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.job_end import why_it_ended
from components.roles.tailrack_command.slurm import SlurmError
from components.roles.tailrack_command.wait_reason import Why, why_it_waits
from components.roles.usage.summary import read_summary, sentence
from components.validation.preflight.findings import plain
from components.validation.slurm_jobs import read_kept
from components.validation.slurm_nodes import Node

NAME, HELP = "why", "explain why a job waits or how it ended, and what to do"
JOB = re.compile(r"[0-9]{1,10}([_+][0-9]{1,10})?")
MOST_TASKS = 20
# Only the end of a job's output is read.
READ_CHARACTERS = 20_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("job", metavar="JOBID", help="the job's id; 12_3 for a task of an array")


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation."""
    if not JOB.fullmatch(arguments.job):
        raise SlurmError(f"{arguments.job!r} is not a job id; write one such as 12, or 12_3 for a task of an array")
    jobs = slurm.jobs(arguments.job)
    nodes = slurm.nodes() if any(job.waits for job in jobs) else []
    pools = read_statuses() if any(job.waits or job.configuring for job in jobs) else []
    explained = [(job, with_gpu_use(job, explain(job, nodes, pools))) for job in jobs[:MOST_TASKS]]
    if arguments.json:
        rows = [{"job": job.title, "user": job.user, "state": job.state, **asdict(why)} for job, why in explained]
        print(json.dumps({"jobs": rows}, indent=2))
        return 0
    print("\n\n".join(as_text(job, why) for job, why in explained))
    if len(jobs) > MOST_TASKS:
        print(f"\nand {len(jobs) - MOST_TASKS} more tasks; to see one: tailrack why {arguments.job}_0")
    return 0


def as_text(job: Job, why: Why) -> str:
    """Return a line with the job and its state, the sentences, and the next command."""
    lines = [f"job {job.title} ({job.name}) of {job.user}: {', '.join(job.flags).lower().replace('_', ' ')}"]
    lines += [f"  {sentence}" for sentence in why.sentences]
    if why.next:
        lines.append(f"  next: {why.next}")
    return "\n".join(plain(line) for line in lines)


def explain(job: Job, nodes: Sequence[Node], pools: Sequence[Status] = ()) -> Why:
    """Return why a job waits, or how it ended.

    nodes   all nodes, for a job that waits
    pools   reports of elastic pools, for a job that waits or gets its machines
    """
    return with_staging(with_cause(job, _explain(job, nodes, pools)), read_record(job.number), job)


def _explain(job: Job, nodes: Sequence[Node], pools: Sequence[Status]) -> Why:
    if job.waits:
        if job.reason == "BeginTime" and job.restarts and not job.failed_node:
            job = replace(job, failed_node=slurm.lost_node(job.title))
        return why_it_waits(job, nodes, slurm.expand, pools)
    if job.configuring and job.nodes and pools and (awaited := renting(slurm.expand(job.nodes), pools, time.time())):
        return Why(tuple(awaited))
    if job.runs and "COMPLETING" in job.flags:
        return Why((f"It has ended, and these nodes are cleaning up: {job.nodes}.",))
    # The reason of a job that has its nodes but has not started yet.
    if job.runs and job.reason == "Prolog":
        return Why((f"Its prolog is running on its nodes, {job.nodes}; it starts after that.",))
    if job.configuring:
        elastic = "Machines of an elastic pool come only while its `make elastic` runs."
        return Why((f"Its nodes {job.nodes} are getting ready, and it starts after that.", elastic))
    if job.runs:
        since = time.strftime("%Y-%m-%d %H:%M", time.gmtime(job.start))
        restarts = f" Restarts so far: {job.restarts}." if job.restarts else ""
        place = job.nodes or "nodes that are getting ready"
        running = f"It has been running on {place} since {since} UTC.{restarts}"
        hang = hang_of(job)
        return Why((running, hang_sentence(hang)), next_command(job.title, hang)) if hang else Why((running,))
    cancelled_by = slurm.cancelled_by(job.title) if job.state == "CANCELLED" else ""
    return why_it_ended(job, _output(job), cancelled_by)


def with_cause(job: Job, why: Why) -> Why:
    """Add why a requeued job has lost its node, unless the explanation has it already."""
    cause = read_cause(job.admin_comment)
    if not cause or not job.restarts or any(cause in sentence for sentence in why.sentences):
        return why
    return replace(why, sentences=(*why.sentences, f"It was requeued because {cause}."))


def with_staging(why: Why, record: Record | None, job: Job) -> Why:
    """Say that a job's folder did not reach its pod, or that its results are still there (role pod_staging)."""
    if record is None or record.state == STAGED or job.waits:
        return why
    if record.state == NOT_IN:
        reason = f"its folder {record.folder} could not be brought to {record.node}: {record.reason}"
        return Why((f"It was ended because {reason}.",), record.next)
    sentence = f"Its results are still in {record.folder} on {record.node}: {record.reason}."
    return replace(why, sentences=(*why.sentences, sentence), next=record.next)


def hang_of(job: Job) -> Hang | None:
    """Return the hang of a running job, as role job_hangs noted it; None without one, or if it was before a requeue."""
    return read_hang(job.admin_comment, job.start) if job.runs else None


def with_gpu_use(job: Job, why: Why) -> Why:
    """Add how the job uses or used its GPUs, as role usage recorded it."""
    # slurmctld keeps the last text of the running job.
    ended = not job.runs and not job.waits and gpus_of(job.allocated)
    held = read_summary(slurm.admin_comment(job.title) if ended else job.admin_comment)
    if held is None or job.waits or held.running != job.runs:
        return why
    return replace(why, sentences=(*why.sentences, sentence(held)))


def _output(job: Job) -> str:
    """Return the end of a job's output, for its user only: root opens no file at a path that a user chose."""
    if os.geteuid() != job.user_number or not job.user_number or not job.output:
        return ""
    return read_kept(Path(job.output))[-READ_CHARACTERS:]
