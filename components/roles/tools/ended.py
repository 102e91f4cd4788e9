"""How a job has ended, in sentences, and what to do: pure, from what Slurm kept of it and the end of its output."""

from __future__ import annotations

import re
import signal

from components.roles.tools.job import Job
from components.roles.tools.waiting import Why

_MEMORY = re.compile(r"(?:^|,)mem=([^,]+)")
# What is in a job's output where its container could not be had (Pyxis and Enroot), and what that means.
_IMAGE = (
    (re.compile(r"401|unauthorized", re.IGNORECASE), "the registry wants a log-in: ~/.config/enroot/.credentials"),
    (
        re.compile(r"\b404\b|not found|manifest unknown|no such file", re.IGNORECASE),
        "there is no such image, tag or file: look at its name",
    ),
    # Enroot's word for a path that leads to no squashfs; of a mount it says so only for blanks in it.
    (
        re.compile(r"invalid argument: [./]\S*$", re.IGNORECASE | re.MULTILINE),
        "there is no such image, or that file is none: look at its name",
    ),
    (re.compile(r"\b429\b|too ?many ?requests", re.IGNORECASE), "the registry lets nobody pull more for now: log in"),
    (re.compile(r"no space left", re.IGNORECASE), "the node's disk is full: 'df -h' there"),
    (
        re.compile(r"could not resolve|timed out|connection refused", re.IGNORECASE),
        "the node does not reach the registry",
    ),
)
_PYXIS_FAILED = re.compile(r"failed to import|couldn't start container|\[ERROR\]")
_CODES = {
    126: "A file that it was to run is no program, or must not be run (exit status 126).",
    127: "A command was not found on the node (exit status 127).",
    # bash, of what it ran: 128 and the signal.
    137: "A program of it was killed (exit status 137), often for memory.",
    139: "A program of it crashed by a wrong access to memory (exit status 139).",
}  # fmt: skip


def why_it_ended(job: Job, output: str = "", cancelled_by: str = "") -> Why:
    """Return how a job has ended.

    output         the end of what it wrote, empty where it cannot be read
    cancelled_by   the user who did, where the books know
    """
    see = f"see its output, {job.output}" if job.output else "see its output"
    if image := _image(output):
        return image
    match job.state:
        case "COMPLETED":
            return Why(("It has ended well.",))
        case "OUT_OF_MEMORY":
            return Why(
                (f"It took more memory than it had ({_memory(job)}), and the kernel ended it.",), "more by --mem"
            )
        case "TIMEOUT":
            return Why((f"It ran for all its {job.minutes} minutes and was ended.",), "more by --time, or checkpoints")
        case "DEADLINE":
            return Why(("It could not end before its --deadline.",))
        case "CANCELLED":
            return Why((f"It was cancelled{f' by {cancelled_by}' if cancelled_by else ''}.",))
        case "PREEMPTED":
            return Why(("A job of higher priority took its nodes.",), "submit it with --requeue, and checkpoints")
        case "NODE_FAIL" | "BOOT_FAIL":
            lost = job.failed_node or job.nodes or "a node"
            return Why((f"A node of it was lost: {lost}.",), f"tailrack nodes {job.failed_node}".strip())
    if job.reason == "JobLaunchFailure" or "launch failed" in job.description.lower():
        return Why((f"A node could not start it: {job.nodes}.",), "tailrack nodes; journalctl -u slurmd there")
    if job.reason == "Prolog":
        return Why((f"The prolog failed on a node of it: {job.nodes}.",), "tailrack nodes")
    # Where jobs are not confined, Slurm itself ends one that took too much, and does not say why.
    if job.signal == signal.SIGKILL:
        said = f"It was killed by signal {_signal(job.signal)}, often for memory: it had {_memory(job)}."
        return Why((said,), f"{see}; more by --mem, if that is it")
    if job.signal:
        return Why((f"It was ended by signal {_signal(job.signal)}.",), see)
    if job.status:
        return Why((_CODES.get(job.status, f"Its script ended with exit status {job.status}."),), see)
    return Why((f"Slurm says: {' '.join(part for part in (job.state, job.reason, job.description) if part)}.",), see)


def _image(output: str) -> Why | None:
    lines = [line.strip() for line in output.splitlines() if re.search(r"pyxis:|\[ERROR\]|enroot", line)]
    # Said by Pyxis itself: a job may write [ERROR] for reasons of its own.
    failed = any(_PYXIS_FAILED.search(line.partition("pyxis:")[2]) for line in lines)
    if not failed:
        return None
    said = "\n".join(lines)
    remedy = next((what for shape, what in _IMAGE if shape.search(said)), "see the lines before in its output")
    return Why(("Its container could not be made:", *(f"  {line}" for line in lines[-4:])), remedy)


def _memory(job: Job) -> str:
    found = _MEMORY.search(job.asked)
    return f"{found[1]} in all" if found else "its share"


def _signal(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
