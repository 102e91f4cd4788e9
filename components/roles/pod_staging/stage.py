"""The command `pod-staging`, root's service on the head node: bring a job's folder to its pod, and its results back.

slurmctld's programs connect to its socket and write `in JOB` or `out JOB`. Everything else about the job comes from
slurmctld or from root's record.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from components.node import files
from components.node.passwd import user_named
from components.node.run import attempt
from components.roles.pod_staging.paths import PODS
from components.roles.pod_staging.record import KEPT, NOT_IN, Record, read_record, records, remove_record, write_record
from components.roles.pod_staging.transfer import Folder, TransferFailed, bring, fetch
from components.validation.json_part import first_object
from components.validation.preflight.findings import plain

_REQUEST = re.compile(r"(in|out) ([1-9][0-9]{0,9})")
_NODE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LIMIT = 20
_LOWEST_UID = 1000


def main(_: Sequence[str]) -> int:
    """Answer one request."""
    match = _REQUEST.fullmatch(sys.stdin.readline(64).rstrip("\n"))
    if not match:
        return 2
    direction, job = match[1], int(match[2])
    done = stage_in(job) if direction == "in" else stage_out(job)
    sys.stdout.write("done\n" if done else "failed\n")
    return 0


def stage_in(number: int) -> bool:
    """Bring a job's folder to its pod. If that fails, say so and cancel the job."""
    job = job_of(number)
    node = str((job or {}).get("nodes", ""))
    if job is None or not _NODE.fullmatch(node) or not files.exists(f"{PODS}/{node}"):
        return True
    user, path = str(job.get("user_name", "")), plain_path(str(job.get("current_working_directory", "")))
    record = Record(number, node, user, path, str(job.get("partition", "")))
    try:
        require_own_folder(user, path)
        others = [other for other in records() if (other.node, other.folder) == (node, path) and other.job != number]
        bring(Folder(node, user, path, number), keep_newer=any(other.state != NOT_IN for other in others))
    except TransferFailed as failure:
        write_record(replace(record, state=NOT_IN, reason=str(failure)))
        _cancel(number, f"the job's folder {path} could not be brought to {node}: {failure}")
        return False
    # The epilog of a job that was cancelled meanwhile has run already.
    if is_alive(job_of(number)):
        write_record(record)
    return True


def stage_out(number: int) -> bool:
    """Bring a job's results back. If that fails, the pod keeps them and the record says so."""
    record = read_record(number)
    if record is None or record.state == NOT_IN:
        return True
    try:
        require_own_folder(record.user, record.folder)
        fetch(Folder(record.node, record.user, record.folder, number))
    except TransferFailed as failure:
        _log(f"results of job {number} stay on {record.node}: {failure}")
        if not files.exists(f"{PODS}/{record.node}"):
            # The pod has left meanwhile.
            remove_record(number)
            return False
        write_record(replace(record, state=KEPT, reason=str(failure)))
        return False
    remove_record(number)
    # This also brought what earlier jobs left there.
    for other in records():
        if (other.node, other.user, other.folder, other.state) == (record.node, record.user, record.folder, KEPT):
            remove_record(other.job)
    return True


def job_of(number: int) -> dict[str, Any] | None:
    """Return a job as slurmctld has it; None if it does not."""
    shown = attempt("scontrol", "show", "job", str(number), "--json", limit=_LIMIT)
    try:
        jobs = list(first_object(shown.output)[0]["jobs"])
    except (KeyError, TypeError):
        return None
    return next((job for job in jobs if isinstance(job, dict) and job.get("job_id") == number), None)


def is_alive(job: Mapping[str, Any] | None) -> bool:
    """Return whether a job is about to start, or runs."""
    flags = (job or {}).get("job_state", [])
    # Text before Slurm 23.11.
    flags = set(flags.split(",") if isinstance(flags, str) else flags)
    return bool(flags & {"RUNNING", "CONFIGURING"}) and "COMPLETING" not in flags


def plain_path(path: str) -> str:
    """Return a path without `.`, `//` and a slash at its end. One with `..` stays as it is."""
    return path if ".." in path.split("/") else posixpath.normpath(path)


def require_own_folder(user: str, path: str) -> None:
    """Raise TransferFailed unless a path is a folder below a user's home."""
    account = user_named(user)
    if account is None or account.pw_uid < _LOWEST_UID:
        raise TransferFailed(f"there is no user {plain(user)} on the head node")
    if not path.isprintable() or posixpath.normpath(path) != path or not path.startswith(f"{account.pw_dir}/"):
        raise TransferFailed(f"only folders below {account.pw_dir} can be brought")


def _cancel(number: int, reason: str) -> None:
    _log(f"cancelling job {number}: {reason}")
    text = plain(reason)
    attempt("scontrol", "update", f"jobid={number}", f"admincomment=tailrack: {text}", limit=_LIMIT)
    attempt("scontrol", "notify", str(number), text, limit=_LIMIT, quiet=True)
    attempt("scancel", str(number), limit=_LIMIT)


def _log(text: str) -> None:
    sys.stderr.write(f"{plain(text)}\n")
