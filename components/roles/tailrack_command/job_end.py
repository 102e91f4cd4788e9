"""Explain in sentences how a job ended, and name the next command. Pure: reads Slurm's data and the job's output."""

from __future__ import annotations

import re
import signal

from components.roles.slurm.end_jobs import cause_at
from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.wait_reason import Why
from components.validation.slurm_nodes import node_names

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
