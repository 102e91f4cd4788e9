"""The cluster's lines in sshd's PAM stack.

A user of the cluster can log in by SSH only with a job on this node, and the login joins the job.
"""

from __future__ import annotations

import re

from components.node import files
from components.node.failure import Failure

SSHD = "/etc/pam.d/sshd"
# The new stack, for a test before it replaces the real one.
TRIED = "/etc/pam.d/tailrack-tried"
# common-session for logins that join a job.
OF_JOBS = "/etc/pam.d/tailrack-jobs"
# Users who need a job, one per line.
JOB_USERS = "/etc/tailrack/job-users"

_BEGIN, _END, _WAS = "# tailrack: begin", "# tailrack: end", "# was: "
_NEEDS_JOB = f"pam_listfile.so item=user sense=allow onerr=fail quiet file={JOB_USERS}"
_NEEDS_NONE = f"pam_listfile.so item=user sense=deny onerr=succeed quiet file={JOB_USERS}"
_ACCOUNT = re.compile(r"-?account[ \t]|@include[ \t]+common-account[ \t]*$")
_SESSION = re.compile(r"@include[ \t]+common-session[ \t]*$")


def without_jobs() -> list[str]:
    """Return the lines of the stack without the cluster's."""
    lines: list[str] = []
    ours = False
    for line in files.lines(SSHD):
        if line == _BEGIN:
            ours = True
        elif not ours:
            lines.append(line)
        elif line == _END:
            ours = False
        elif line.startswith(_WAS):
            lines.append(line.removeprefix(_WAS))
    return lines


def with_jobs(host: str) -> list[str]:
    """Return the lines of a stack that requires a job. Raises Failure if the stack is not as Debian's."""
    lines = without_jobs()
    accounts = [number for number, line in enumerate(lines) if _ACCOUNT.match(line)]
    sessions = [number for number, line in enumerate(lines) if _SESSION.match(line)]
    if not accounts or not sessions:
        raise Failure(
            f"{SSHD} includes no common-account and common-session",
            "restore Debian's lines, or set tailrack:slurm.ssh_needs_job to false",
        )
    stack: list[str] = []
    for number, line in enumerate(lines):
        stack += _session_lines() if number == sessions[-1] else [line]
        if number == accounts[-1]:
            stack += _account_lines(host)
    return stack


def _account_lines(host: str) -> list[str]:
    return [
        _BEGIN,
        f"account [success=ignore default=1] {_NEEDS_JOB}",
        f"account required pam_slurm_adopt.so nodename={host} action_adopt_failure=deny action_generic_failure=deny",
        _END,
    ]


def _session_lines() -> list[str]:
    """Return the lines that replace the one with common-session.

    pam_systemd would take the login out of its job's cgroup, so users who need a job get a copy without it.
    """
    return [
        _BEGIN,
        f"{_WAS}@include common-session",
        f"session [success=1 default=ignore] {_NEEDS_JOB}",
        "session substack common-session",
        f"session [success=1 default=ignore] {_NEEDS_NONE}",
        f"session substack {OF_JOBS.rpartition('/')[2]}",
        _END,
    ]


def restore_stack() -> None:
    """Remove the cluster's lines and files.

    The complete file is renamed, so that a stack always exists. The old stack needs its files until then.
    """
    if _BEGIN in files.lines(SSHD):
        files.write(SSHD, "\n".join(without_jobs()))
    for path in (OF_JOBS, JOB_USERS, TRIED):
        files.remove(path)
