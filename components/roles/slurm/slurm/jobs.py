"""End the jobs of a node whose machine goes away or must be free: requeue those that allow it, and cancel the others.

For both, Slurm sends SIGTERM to all processes of the job, and SIGKILL to those that are left after KillWait.
"""

import re
from collections.abc import Collection, Sequence

from components.node import files
from components.node.log import STATE_DIR, note
from components.node.run import attempt
from components.node.waiting import wait_until
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job, parts_of

_LIMIT = 10
_AT_ONCE = 8
# squeue's %i is Job.title.
_JOB = re.compile(r"[0-9]+(?:[_+][0-9]+)?")
# Seconds for jobs to leave the node once they are requeued or cancelled, and after SIGKILL.
_END_LIMIT = 60
_AFTER_KILL = 30
# Seconds between two questions: jobs may run for hours.
_PAUSE = 2
# The same as in templates/tailrack-shutdown.
SHUTS_DOWN = "tailrack: shuts down"
_SHUTDOWN_LIMIT = 4


def cause_at(comment: str, nodes: Collection[str]) -> str:
    """Return the cause in a job's AdminComment if it is about one of these nodes; empty otherwise."""
    cause = read_cause(comment)
    return cause if {*nodes} & {*cause.split()} else ""


def read_cause(comment: str) -> str:
    """Return the cause in a job's AdminComment; empty without one."""
    return str(parts_of(comment).get("cause") or "")


def started_again_cause(node: str) -> str:
    """Return the cause of a pod that stopped and started."""
    return f"node {node} stopped and started again"


def end_jobs(node: str, cause: str) -> list[str] | None:
    """Requeue or cancel the jobs of a node, and return those that were requeued; None if slurmctld does not answer."""
    from concurrent.futures import ThreadPoolExecutor

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
        requeued = slurm.requeue(job)
        note(f"{'requeued' if requeued else 'cannot requeue'} job {job} of {owner}: {cause}")
        return requeued
    note(f"cancelling job {job} of {owner}, which cannot be requeued: {cause}")
    message = f"job {job} is cancelled: {cause}, and the job cannot be requeued"
    slurm.notify(job, message)
    slurm.end(job)
    return False


def set_cause(job: str, cause: str) -> Job | None:
    """Write a cause for `tailrack why` into a job's AdminComment. Return the job; None without an answer."""
    shown = next((each for each in slurm.jobs_or_none(job, limit=_LIMIT) or () if each.title == job), None)
    if shown is None:
        return None
    slurm.set_parts(shown, cause=cause)
    return shown


def wait_for_end(node: str, seconds: float) -> bool:
    """Wait until all processes of jobs on a node have ended. Return whether that happened in time."""

    return wait_until(lambda: slurm.squeue("%A", "-w", node, limit=_LIMIT, quiet=True) == [], seconds)


def start_again(jobs: Sequence[str]) -> None:
    """Let requeued jobs start at once. Slurm would let them wait for two minutes."""
    waiting = _jobs(("-j", ",".join(jobs), "-t", "PENDING"), "%i %T %r") if jobs else None
    for job, _, reason in waiting or ():
        if reason == "BeginTime":
            slurm.update(jobid=job, starttime="now", limit=_LIMIT)


def _jobs(which: Sequence[str], form: str) -> list[tuple[str, ...]] | None:
    rows = slurm.squeue(form, *which, limit=_LIMIT)
    if rows is None:
        return None
    return sorted({tuple(row) for row in rows if len(row) == len(form.split()) and _JOB.fullmatch(row[0])})


def clear_jobs(node: str, reason: str, limit: float) -> bool:
    """Drain a node, and return whether it has no jobs any more.

    limit   seconds to wait before jobs are requeued
    """
    slurm.update(nodename=node, state="drain", reason=reason)
    if wait_until(lambda: _has_no_jobs(node), limit, _PAUSE):
        return True
    end_jobs(node, f"node {node} had to be free")
    return wait_until(lambda: _has_no_jobs(node), max(_END_LIMIT, _kill_wait() + _AFTER_KILL))


def _kill_wait() -> int:
    """Return the seconds between SIGTERM and SIGKILL."""
    seconds = (slurm.config("KillWait") or "").partition(" ")[0]
    return int(seconds) if seconds.isdecimal() else 0


def _has_no_jobs(node: str) -> bool:
    return slurm.squeue("%A", "-w", node) == []


def save_jobs(arguments: Sequence[str]) -> int:
    """End the node's jobs, and wait until their processes have ended."""
    # The unit also stops when the node leaves the cluster, or an administrator restarts the unit.
    if attempt("systemctl", "is-system-running").output.strip() != "stopping":
        return 0
    node = (files.read(f"{STATE_DIR}/node-name") or "").strip()
    # No new job may start here. A node that is drained already keeps its reason.
    state = slurm.node(node, _SHUTDOWN_LIMIT)
    if state is None:
        note("slurmctld does not answer")
        return 0
    if not state.drained:
        slurm.update(nodename=node, state="drain", reason=SHUTS_DOWN, limit=_SHUTDOWN_LIMIT)
    end_jobs(node, f"node {node} shut down")
    if not wait_for_end(node, int(arguments[0])):
        note(f"jobs have not ended within {arguments[0]} s")
    # tailrack-shutdown sets the node down. With a drain, it would stay out after the reboot.
    if not state.drained:
        slurm.update(nodename=node, state="undrain", limit=_SHUTDOWN_LIMIT)
    return 0
