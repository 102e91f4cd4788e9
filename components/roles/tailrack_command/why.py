"""`tailrack why JOBID`: why a job waits, or how it has ended, in sentences, with what to do."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.ended import why_it_ended
from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.slurm import SlurmError
from components.roles.tailrack_command.waiting import Why, why_it_waits
from components.validation.preflight.findings import plain
from components.validation.slurm_jobs import read_kept
from components.validation.slurm_nodes import Node

NAME, HELP = "why", "say why a job waits or how it has ended, and what to do"
JOB = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")
MOST_TASKS = 20
# Of a job's output: its end.
READ_CHARACTERS = 20_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add its words."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("job", metavar="JOBID", help="its number; 12_3 for a task of an array")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    if not JOB.fullmatch(arguments.job):
        raise SlurmError(f"{arguments.job!r} is no job's number; write one such as 12, or 12_3 for a task of an array")
    jobs = slurm.jobs(arguments.job)
    nodes = slurm.nodes() if any(job.waits for job in jobs) else []
    told = [(job, _why(job, nodes)) for job in jobs[:MOST_TASKS]]
    if arguments.json:
        rows = [{"job": job.title, "user": job.user, "state": job.state, **asdict(why)} for job, why in told]
        print(json.dumps({"jobs": rows}, indent=2))
        return 0
    print("\n\n".join(as_text(job, why) for job, why in told))
    if len(jobs) > MOST_TASKS:
        print(f"\nand {len(jobs) - MOST_TASKS} more tasks; ask for one: tailrack why {arguments.job}_0")
    return 0


def as_text(job: Job, why: Why) -> str:
    """A line that says which job, its sentences, and what to do."""
    lines = [f"job {job.title} ({job.name}) of {job.user}: {', '.join(job.flags).lower().replace('_', ' ')}"]
    lines += [f"  {sentence}" for sentence in why.sentences]
    if why.next:
        lines.append(f"  next: {why.next}")
    return "\n".join(plain(line) for line in lines)


def _why(job: Job, nodes: Sequence[Node]) -> Why:
    if job.waits:
        return why_it_waits(job, nodes, slurm.expand)
    if job.runs and "COMPLETING" in job.flags:
        return Why((f"It has ended, and these nodes clean up after it: {job.nodes}.",))
    # Slurm's word of a job that has its nodes, and of which nothing runs yet.
    if job.runs and job.reason == "Prolog":
        return Why((f"Its prolog runs on its nodes, {job.nodes}: it begins when that is done.",))
    if job.runs:
        since = time.strftime("%Y-%m-%d %H:%M", time.gmtime(job.start))
        again = f" It was begun anew {job.restarts} times." if job.restarts else ""
        return Why((f"It runs on {job.nodes or 'nodes that get ready'} since {since} UTC.{again}",))
    cancelled_by = slurm.cancelled_by(job.title) if job.state == "CANCELLED" else ""
    return why_it_ended(job, _output(job), cancelled_by)


def _output(job: Job) -> str:
    """The end of a job's output, for its user alone: root opens no file whose path a user has chosen."""
    if os.geteuid() != job.user_number or not job.user_number or not job.output:
        return ""
    return read_kept(Path(job.output))[-READ_CHARACTERS:]
