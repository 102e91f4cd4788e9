"""End the jobs of a node whose machine goes away or must be free: requeue those that allow it, and cancel the others.

For both, Slurm sends SIGTERM to all processes of the job, and SIGKILL to those that are left after KillWait.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from components.node import files
from components.node.log import note
from components.node.run import attempt
from components.node.state import STATE_DIR
from components.node.waiting import wait_until
from components.roles.tailrack_command.job import Job, read_jobs

_LIMIT = 10
_AT_ONCE = 8
# A cause is a part of AdminComment, beside an administrator's text and the use of GPUs (role usage).
_BETWEEN = "; "
_CAUSE = re.compile(
    r"(?:AWS|Google|Azure) took node [a-z0-9-]{1,63} back at [0-9:]{8}Z|"
    r"node [a-z0-9-]{1,63} (?:shut down|had to be free|stopped and started again)"
)
# squeue's %i is Job.title.
_JOB = re.compile(r"[0-9]+(?:[_+][0-9]+)?")
# Seconds for jobs to leave the node once they are requeued or cancelled, and after SIGKILL.
_END_LIMIT = 60
_AFTER_KILL = 30
_KILL_WAIT = re.compile(r"^KillWait *= ([0-9]+) sec", re.MULTILINE)
# Seconds between two questions: jobs may run for hours.
_PAUSE = 2
# The same as in templates/tailrack-shutdown.
SHUTS_DOWN = "tailrack: shuts down"
_SHUTDOWN_LIMIT = 4


def shut_down_cause(node: str) -> str:
    """Return the cause of a machine that shuts down."""
    return f"node {node} shut down"


def must_be_free_cause(node: str) -> str:
    """Return the cause of a node that leaves the cluster or is set up again."""
    return f"node {node} had to be free"


def cause_at(comment: str, nodes: Collection[str]) -> str:
    """Return the cause in a job's AdminComment if it is about one of these nodes; empty otherwise."""
    cause = read_cause(comment)
    return cause if {*nodes} & {*cause.split()} else ""


def read_cause(comment: str) -> str:
    """Return the cause in a job's AdminComment; empty without one."""
    return next((part for part in comment.split(_BETWEEN) if _CAUSE.fullmatch(part)), "")


def with_cause(comment: str, cause: str) -> str:
    """Return a job's AdminComment with a cause, which replaces an earlier one. It comes first."""
    others = [part for part in comment.split(_BETWEEN) if part and not _CAUSE.fullmatch(part)]
    return _BETWEEN.join([cause, *others])


def started_again_cause(node: str) -> str:
    """Return the cause of a pod that stopped and started."""
    return f"node {node} stopped and started again"


def end_jobs(node: str, cause: str) -> list[str] | None:
    """Requeue or cancel the jobs of a node, and return those that were requeued; None if slurmctld does not answer."""
    running = _jobs(("-w", node), "%i %u %T")
    if running is None:
        return None
    jobs = [(job, owner) for job, owner, state in running if state not in ("COMPLETING", "PENDING")]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        requeued = pool.map(lambda job: _end(job[0], job[1], cause), jobs)
        return [job for (job, _), done in zip(jobs, requeued, strict=True) if done]


def _end(job: str, owner: str, cause: str) -> bool:
    """Requeue or cancel a job, and return whether it was requeued."""
    shown = set_cause(job, cause)
    if shown is None:
        return False
    # A requeue that fails for another reason must not cancel the job.
    if shown.requeues and shown.batch:
        requeued = attempt("scontrol", "requeue", job, limit=_LIMIT).ok
        note(f"{'requeued' if requeued else 'cannot requeue'} job {job} of {owner}: {cause}")
        return requeued
    note(f"cancelling job {job} of {owner}, which cannot be requeued: {cause}")
    message = f"job {job} is cancelled: {cause}, and the job cannot be requeued"
    attempt("scontrol", "notify", job, message, limit=_LIMIT, quiet=True)
    attempt("scancel", job, limit=_LIMIT)
    return False


def set_cause(job: str, cause: str) -> Job | None:
    """Write a cause for `tailrack why` into a job's AdminComment. Return the job; None without an answer."""
    output = attempt("scontrol", "show", "job", job, "--json", limit=_LIMIT, quiet=True).output
    try:
        jobs = read_jobs(output)
    except ValueError:
        return None
    shown = next((each for each in jobs if each.title == job), None)
    if shown is None:
        return None
    text = with_cause(shown.admin_comment, cause)
    attempt("scontrol", "update", f"jobid={job}", f"admincomment={text}", limit=_LIMIT, quiet=True)
    return shown


def wait_for_end(node: str, seconds: float) -> bool:
    """Wait until all processes of jobs on a node have ended. Return whether that happened in time."""

    def none_left() -> bool:
        left = attempt("squeue", "-h", "-w", node, "-o", "%A", limit=_LIMIT, quiet=True)
        return left.ok and not left.output.strip()

    return wait_until(none_left, seconds)


def start_again(jobs: Sequence[str]) -> None:
    """Let requeued jobs start at once. Slurm would let them wait for two minutes."""
    waiting = _jobs(("-j", ",".join(jobs), "-t", "PENDING"), "%i %T %r") if jobs else None
    for job, _, reason in waiting or ():
        if reason == "BeginTime":
            attempt("scontrol", "update", f"jobid={job}", "starttime=now", limit=_LIMIT)


def _jobs(which: Sequence[str], form: str) -> list[tuple[str, ...]] | None:
    shown = attempt("squeue", "-h", *which, "-o", form, limit=_LIMIT)
    if not shown.ok:
        return None
    columns = len(form.split())
    rows = {tuple(line.split(None, columns - 1)) for line in shown.output.splitlines()}
    return sorted(row for row in rows if len(row) == columns and _JOB.fullmatch(row[0]))


def clear_jobs(node: str, reason: str, limit: float) -> bool:
    """Drain a node, and return whether it has no jobs any more.

    limit   seconds to wait before jobs are requeued
    """
    attempt("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")
    if wait_until(lambda: _has_no_jobs(node), limit, _PAUSE):
        return True
    end_jobs(node, must_be_free_cause(node))
    return wait_until(lambda: _has_no_jobs(node), max(_END_LIMIT, _kill_wait() + _AFTER_KILL))


def _kill_wait() -> int:
    """Return the seconds between SIGTERM and SIGKILL."""
    found = _KILL_WAIT.search(attempt("scontrol", "show", "config", quiet=True).output)
    return int(found[1]) if found else 0


def _has_no_jobs(node: str) -> bool:
    jobs = attempt("squeue", "-h", "-w", node, "-o", "%A")
    return jobs.ok and not jobs.output.strip()


def save_jobs(arguments: Sequence[str]) -> int:
    """End the node's jobs, and wait until their processes have ended."""
    # The unit also stops when the node leaves the cluster, or an administrator restarts the unit.
    if attempt("systemctl", "is-system-running").output.strip() != "stopping":
        return 0
    node = (files.read(f"{STATE_DIR}/node-name") or "").strip()
    # No new job may start here. A node that is drained already keeps its reason.
    state = attempt("scontrol", "-o", "show", "node", node, limit=_SHUTDOWN_LIMIT, quiet=True)
    if not state.ok:
        note("slurmctld does not answer")
        return 0
    drained = "+DRAIN" in state.output
    if not drained:
        attempt("scontrol", "update", f"nodename={node}", "state=drain", f"reason={SHUTS_DOWN}", limit=_SHUTDOWN_LIMIT)
    end_jobs(node, shut_down_cause(node))
    if not wait_for_end(node, int(arguments[0])):
        note(f"jobs have not ended within {arguments[0]} s")
    # tailrack-shutdown sets the node down. With a drain, it would stay out after the reboot.
    if not drained:
        attempt("scontrol", "update", f"nodename={node}", "state=undrain", limit=_SHUTDOWN_LIMIT)
    return 0
