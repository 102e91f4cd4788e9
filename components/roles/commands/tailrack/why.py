"""`tailrack why JOBID`: explain in sentences why a job waits or how it ended, and name the next command."""

import argparse
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from components.roles.commands.sll.snapshot import gpus_of
from components.roles.commands.tailrack.elastic import Status, read_statuses, renting
from components.roles.commands.tailrack.wait_reason import Why, why_it_waits
from components.roles.jobs.job_hangs.communicators import Hang, next_command, read_hang
from components.roles.jobs.job_hangs.communicators import sentence as hang_sentence
from components.roles.monitoring.usage.samples import read_summary, sentence
from components.roles.pods.pod_staging.record import NOT_IN, STAGED, Record, read_record
from components.roles.slurm.slurm.jobs import cause_at, read_cause
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import Node, node_names
from components.slurm_commands.slurm import SlurmError
from components.validation.preflight.findings import plain
from components.validation.slurm_jobs import read_kept

NAME, HELP = "why", "explain why a job waits or how it ended, and what to do"
JOB = re.compile(r"[0-9]{1,10}([_+][0-9]{1,10})?")
MOST_TASKS = 20
# Only the end of a job's output is read.
READ_CHARACTERS = 20_000
_MEMORY = re.compile(r"(?:^|,)mem=([^,]+)")
# Error messages of Pyxis and Enroot with their remedies; the first match counts. Each pattern includes the message
# around a number, because paths and digests can contain any number.
_IMAGE = tuple(
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), remedy)
    for pattern, remedy in (
        (r"no space left on device|disk quota exceeded", "the node's disk is full: check 'df -h' there"),
        (r"command not found: (\S{1,80})",
         "the node lacks the program {}, which Enroot needs: install it there, or ask your administrator"),
        (r"enroot-mount: failed to mount: (\S{1,200})", "{} cannot be mounted: check --container-mounts"),
        (r"returned error code: 401\b|\b401 unauthorized|unauthorized: |authentication required",
         "the registry requires a log-in: write it to ~/.config/enroot/.credentials"),
        (r"returned error code: 403\b|\b403 forbidden|denied: ", "the registry refuses the image to this log-in"),
        (r"returned error code: 404\b|\b404 not found|manifest unknown|name unknown|manifest \S+ not found"
         r"|no such file or directory: \S+\.(?:sqsh|squashfs|img)\b",
         "there is no such image, tag or file: check its name"),
        (r"no such file or directory: (\S{1,200})", "{} does not exist: check the image's name and --container-mounts"),
        # Enroot prints this for a path without a squashfs image. For a mount it does so only if the mount has blanks.
        (r"invalid argument: [./]\S*$", "there is no such image, or the file is not an image: check its name"),
        (r"returned error code: 429\b|\b429 too many|too ?many ?requests",
         "the registry allows no more pulls for now: log in"),
        (r"could not resolve|timed out|connection refused|network is unreachable",
         "the node cannot reach the registry"),
    )
)  # fmt: skip
_PYXIS_FAILED = re.compile(r"failed to import|couldn't start container|\[ERROR\]")
_CODES = {
    126: "It tried to run a file that is not executable (exit status 126).",
    127: "A command was not found on the node (exit status 127).",
    # bash returns 128 plus the signal.
    137: "One of its programs was killed (exit status 137), often for lack of memory.",
    139: "One of its programs crashed with an invalid memory access (exit status 139).",
}  # fmt: skip
_REQUEUE = "submit it with sbatch and without --no-requeue, and write checkpoints at SIGTERM"


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


def why_it_ended(job: Job, output: str = "", cancelled_by: str = "") -> Why:
    """Return how a job ended.

    output         the end of its output, empty if it cannot be read
    cancelled_by   the user who cancelled it, if the accounting knows
    """
    see = f"see its output, {job.output}" if job.output else "see its output"
    if image := _image(output):
        return image
    match job.state:
        case "COMPLETED":
            return Why(("It completed successfully.",))
        case "OUT_OF_MEMORY":
            return Why(
                (f"It used more memory than it had ({_memory(job)}), and the kernel killed it.",),
                "request more with --mem",
            )
        case "TIMEOUT":
            return Why(
                (f"It reached its time limit of {job.minutes} minutes and was ended.",),
                "request more with --time, or write checkpoints",
            )
        case "DEADLINE":
            return Why(("It could not end before its --deadline.",))
        case "CANCELLED" if (cause := _cause(job)) and cancelled_by in ("", "root"):
            return Why((f"It was ended because {cause}, and it cannot be requeued.",), _REQUEUE)
        case "CANCELLED":
            return Why((f"It was cancelled{f' by {cancelled_by}' if cancelled_by else ''}.",))
        case "PREEMPTED":
            return Why(("A job of higher priority took its nodes.",), "submit it with --requeue, and write checkpoints")
        case "NODE_FAIL" | "BOOT_FAIL":
            lost = job.failed_node or job.nodes or "a node"
            cause = _cause(job)
            why = f"One of its nodes was lost: {cause or lost}."
            return Why((why,), f"tailrack nodes {job.failed_node}".strip())
    if job.reason == "JobLaunchFailure" or "launch failed" in job.description.lower():
        return Why((f"A node could not start it: {job.nodes}.",), "tailrack nodes; 'journalctl -u slurmd' on the node")
    if job.reason == "Prolog":
        return Why((f"The prolog failed on one of its nodes: {job.nodes}.",), "tailrack nodes")
    # If jobs are not confined, Slurm kills a job that uses too much memory without giving a reason.
    if job.signal == signal.SIGKILL:
        sentence = f"It was killed by signal {_signal(job.signal)}, often for lack of memory: it had {_memory(job)}."
        return Why((sentence,), f"{see}; if it needs more memory, request it with --mem")
    if job.signal:
        return Why((f"It was ended by signal {_signal(job.signal)}.",), see)
    if job.status:
        return Why((_CODES.get(job.status, f"Its script ended with exit status {job.status}."),), see)
    return Why((f"Slurm reports: {' '.join(part for part in (job.state, job.reason, job.description) if part)}.",), see)


def _cause(job: Job) -> str:
    """Return why tailrack ended this run of a job; empty if it did not. An earlier run was on other nodes."""
    try:
        return cause_at(job.admin_comment, node_names(job.nodes))
    except ValueError:
        return ""


def _image(output: str) -> Why | None:
    lines = [line.strip() for line in output.splitlines() if re.search(r"pyxis:|\[ERROR\]|enroot", line)]
    # Only Pyxis's lines count: a job can write [ERROR] for any reason.
    failed = any(_PYXIS_FAILED.search(line.partition("pyxis:")[2]) for line in lines)
    if not failed:
        return None
    text = "\n".join(lines)
    remedy = "see the lines before these in its output"
    for pattern, advice in _IMAGE:
        if match := pattern.search(text):
            remedy = advice.format(*match.groups())
            break
    return Why(("Its container could not be created:", *(f"  {line}" for line in lines[-4:])), remedy)


def _memory(job: Job) -> str:
    match = _MEMORY.search(job.resources)
    return f"{match[1]} in total" if match else "its share"


def _signal(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
