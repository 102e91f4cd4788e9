"""Clear a node of jobs: wait for them to end; after a limit, requeue them and cancel those that cannot be requeued."""

from __future__ import annotations

import re

from components.node.run import attempt
from components.node.waiting import wait_until
from components.roles.slurm.end_jobs import end_jobs, must_be_free_cause

# Seconds for jobs to leave the node once they are requeued or cancelled, and after SIGKILL.
_END_LIMIT = 60
_AFTER_KILL = 30
_KILL_WAIT = re.compile(r"^KillWait *= ([0-9]+) sec", re.MULTILINE)
# Seconds between two questions: jobs may run for hours.
_PAUSE = 2


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
