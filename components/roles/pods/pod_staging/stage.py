"""The command `pod-staging`, root's service on the head node: bring a job's folder to its pods, and its results back.

slurmctld's programs connect to its socket and write `in JOB` or `out JOB`. Everything else about the job comes from
slurmctld or from root's record. Those programs run the command `pod-staging-ask`, which waits.
"""

import posixpath
import re
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from components.node import files
from components.node.passwd import user_named
from components.roles.pods.pod_staging.record import (
    KEPT,
    NOT_IN,
    PODS,
    SOCKET,
    Record,
    read_record,
    records,
    remove_record,
    write_record,
)
from components.roles.pods.pod_staging.transfer import TransferFailed, bring, fetch
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job
from components.slurm_commands.nodes import node_names
from components.validation.preflight.findings import plain

_REQUEST = re.compile(r"(in|out) ([1-9][0-9]{0,9})")
_NODE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LIMIT = 20
_LOWEST_UID = 1000
# Transfers to a job's pods at the same time: Slurm waits for all of them together.
_AT_ONCE = 32
# Slurm would end this program after 120 s. The service goes on without it.
_SECONDS = 110


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
    """Bring a job's folder to its pods. If that fails, say so and cancel the job."""
    job = job_of(number)
    nodes = _pods(job.nodes if job else "")
    if job is None or not nodes:
        return True
    user, path = job.user, plain_path(job.folder)
    record = Record(number, ",".join(nodes), user, path, job.partition)
    others = [other for other in records() if other.folder == path and other.job != number and other.state != NOT_IN]
    try:
        require_own_folder(user, path)
        failures = _bring_to_each(record, {node for other in others for node in other.nodes})
    except TransferFailed as failure:
        failures = {record.node: str(failure)}
    if failures:
        failed, reason = ",".join(failures), _reasons(failures)
        write_record(replace(record, node=failed, state=NOT_IN, reason=reason))
        _cancel(job, f"the job's folder {path} could not be brought to {failed}: {reason}")
        return False
    # The epilog of a job that was cancelled meanwhile has run already.
    if is_alive(job_of(number)):
        write_record(record)
    return True


def stage_out(number: int) -> bool:
    """Bring a job's results back. If that fails, its pods keep them and the record says which."""
    record = read_record(number)
    if record is None or record.state == NOT_IN:
        return True
    failures = _fetch_from_each(record)
    # Those that have left the cluster meanwhile took the results with them.
    kept = [node for node in failures if files.exists(f"{PODS}/{node}")]
    if kept:
        reason = _reasons({node: failures[node] for node in kept})
        write_record(replace(record, node=",".join(kept), state=KEPT, reason=reason))
    else:
        remove_record(number)
    # This also brought what earlier jobs left there.
    brought = set(record.nodes).difference(failures)
    for other in records():
        same = (other.user, other.folder, other.state) == (record.user, record.folder, KEPT)
        if same and set(other.nodes) <= brought:
            remove_record(other.job)
    return not failures


def _fetch_from_each(record: Record) -> dict[str, str]:
    """Bring results back, one pod after the other; return why, by pod, where that failed.

    Of a file that several pods wrote, the newest stays: each transfer skips files that are newer on the share.
    """
    failures = {}
    for node in record.nodes:
        try:
            require_own_folder(record.user, record.folder)
            fetch(replace(record, node=node))
        except TransferFailed as failure:
            _log(f"results of job {record.job} stay on {node}: {failure}")
            failures[node] = str(failure)
    return failures


def _pods(names: str) -> list[str]:
    """Return the names in a list such as `p[1-2]`; none unless all are pods."""
    nodes = [names] if _NODE.fullmatch(names) else []
    if names and not nodes:
        try:
            nodes = node_names(names)
        except ValueError:
            return []
    return nodes if all(_NODE.fullmatch(node) and files.exists(f"{PODS}/{node}") for node in nodes) else []


def _bring_to_each(record: Record, keep_newer: Collection[str]) -> dict[str, str]:
    """Bring a job's folder to all its pods at once; return why, by pod, where that failed.

    keep_newer   the pods that have newer files of other jobs
    """

    def failure_of(node: str) -> str:
        try:
            bring(replace(record, node=node), keep_newer=node in keep_newer)
        except TransferFailed as failure:
            return str(failure)
        return ""

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        failures = zip(record.nodes, pool.map(failure_of, record.nodes), strict=True)
        return {node: failure for node, failure in failures if failure}


def _reasons(failures: Mapping[str, str]) -> str:
    """Return the reasons as one text, which names the pods if there are several."""
    if len(failures) == 1:
        return "".join(failures.values())
    return "; ".join(f"{node}: {failure}" for node, failure in failures.items())


def job_of(number: int) -> Job | None:
    """Return a job as slurmctld has it; None if it does not."""
    jobs = slurm.jobs_or_none(str(number), limit=_LIMIT) or ()
    return next((job for job in jobs if job.number == number), None)


def is_alive(job: Job | None) -> bool:
    """Return whether a job is about to start, or runs."""
    flags = {*job.flags} if job else set()
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


def _cancel(job: Job, reason: str) -> None:
    _log(f"cancelling job {job.title}: {reason}")
    text = plain(reason)
    slurm.set_parts(job, ended=text)
    slurm.notify(job.title, text)
    slurm.end(job.title)


def _log(text: str) -> None:
    sys.stderr.write(f"{plain(text)}\n")


def ask(arguments: Sequence[str]) -> int:
    """Return 0 in every case: the service cancels a job whose folder did not arrive."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_SECONDS)
        try:
            connection.connect(SOCKET)
            connection.sendall(f"{' '.join(arguments)}\n".encode())
            while connection.recv(64):
                pass
        except OSError as error:
            sys.stderr.write(f"pod-staging {' '.join(arguments)}: {error}\n")
            # Slurm requeues and holds a job that has not got its folder.
            return 1 if arguments[:1] == ["in"] else 0
    return 0
