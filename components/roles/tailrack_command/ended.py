"""How a job has ended, in sentences, and what to do: pure, from what Slurm kept of it and the end of its output."""

from __future__ import annotations

import re
import signal

from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.waiting import Why

_MEMORY = re.compile(r"(?:^|,)mem=([^,]+)")
# What is in a job's output where its container could not be had (Pyxis and Enroot), and what that means; the first that
# fits. A phrase counts where its program puts it, not a number anywhere: paths and digests have all numbers in them.
_IMAGE = tuple(
    (re.compile(shape, re.IGNORECASE | re.MULTILINE), what)
    for shape, what in (
        (r"no space left on device|disk quota exceeded", "the node's disk is full: 'df -h' there"),
        (r"command not found: (\S{1,80})",
         "the node lacks the program {}, which Enroot needs: install it there, or have an administrator do so"),
        (r"enroot-mount: failed to mount: (\S{1,200})", "{} cannot be mounted: look at --container-mounts"),
        (r"returned error code: 401\b|\b401 unauthorized|unauthorized: |authentication required",
         "the registry wants a log-in: ~/.config/enroot/.credentials"),
        (r"returned error code: 403\b|\b403 forbidden|denied: ", "the registry does not give the image to this log-in"),
        (r"returned error code: 404\b|\b404 not found|manifest unknown|name unknown|manifest \S+ not found"
         r"|no such file or directory: \S+\.(?:sqsh|squashfs|img)\b",
         "there is no such image, tag or file: look at its name"),
        (r"no such file or directory: (\S{1,200})", "{} is not there: look at the image's name and --container-mounts"),
        # Enroot's word for a path that leads to no squashfs; of a mount it says so only for blanks in it.
        (r"invalid argument: [./]\S*$", "there is no such image, or that file is none: look at its name"),
        (r"returned error code: 429\b|\b429 too many|too ?many ?requests",
         "the registry lets nobody pull more for now: log in"),
        (r"could not resolve|timed out|connection refused|network is unreachable",
         "the node does not reach the registry"),
    )
)  # fmt: skip
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
    remedy = "see the lines before in its output"
    for shape, what in _IMAGE:
        if found := shape.search(said):
            remedy = what.format(*found.groups())
            break
    return Why(("Its container could not be made:", *(f"  {line}" for line in lines[-4:])), remedy)


def _memory(job: Job) -> str:
    found = _MEMORY.search(job.asked)
    return f"{found[1]} in all" if found else "its share"


def _signal(number: int) -> str:
    try:
        return f"{number} ({signal.Signals(number).name})"
    except ValueError:
        return str(number)
