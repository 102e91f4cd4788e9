"""Query slurmctld with scontrol, and the accounting with sacct. Works with Slurm 23.11 and later."""

from __future__ import annotations

import os
import pwd
import time
from dataclasses import dataclass

from components.node import run
from components.node.run import attempt_bounded
from components.roles.tailrack_command.job import Job, read_jobs
from components.validation.slurm_nodes import Node, read_nodes

LIMIT_SECONDS = 30
# An answer of 25,000 jobs. Read as JSON, it takes several times as much memory.
MOST_BYTES = 256 << 20


class SlurmError(Exception):
    """slurmctld did not answer or refused the command. The message is for people."""


def nodes(*names: str) -> list[Node]:
    """Return all nodes, or the named ones. Raise SlurmError, also for an unknown node."""
    output = scontrol("show", "nodes", *([",".join(names)] if names else []), "--json")
    try:
        result = read_nodes(output)
    except ValueError:
        raise SlurmError("scontrol does not print nodes as JSON here; see 'scontrol show nodes --json'") from None
    existing = {node.name for node in result}
    # scontrol omits unknown nodes. A name can be Slurm's short form of several names.
    if short := [name for name in names if name not in existing]:
        missing = [name for name in expand(",".join(short)) if name not in existing]
        if missing:
            raise SlurmError(f"there is no node {', '.join(missing)}; 'tailrack nodes' shows all nodes")
    return result


def jobs(name: str) -> list[Job]:
    """Return a job, or all tasks of an array, from slurmctld or else from the accounting. Raise SlurmError."""
    try:
        output = scontrol("show", "job", name, "--json")
    except SlurmError as error:
        if "invalid job id" not in str(error).lower():
            raise
        output = '{"jobs": []}'
    try:
        result = read_jobs(output)
    except ValueError:
        raise SlurmError("scontrol does not print jobs as JSON here; see 'scontrol show job --json'") from None
    result = result or _from_accounting(name)
    if not result:
        raise SlurmError(
            f"there is no job {name}, or it ended minutes ago and the cluster has no tailrack:accounting; "
            "'squeue' shows waiting and running jobs"
        )
    return result


def _from_accounting(name: str) -> list[Job]:
    """Return a job that slurmctld no longer knows, with the fields that the accounting keeps."""
    output = _sacct(name, "JobIDRaw,JobID,User,State,ExitCode,NodeList,Partition,ReqTRES,TimelimitRaw,AdminComment")
    # A user chose it, and it may contain anything: it is asked for alone. All tasks of an array have the same.
    job_name = _sacct(name, "JobName").partition("\n")[0]
    jobs = []
    for line in output.splitlines():
        # An administrator's comment may contain anything.
        fields = line.split("|", 9)
        if len(fields) != 10 or not fields[0].isdecimal():
            continue
        raw, title, user, state, code, nodes, partition, resources, minutes, comment = fields
        array, _, task = title.partition("_")
        het, _, offset = title.partition("+")
        status, _, signal = code.partition(":")
        jobs.append(
            Job(
                int(raw),
                job_name,
                user,
                0,
                (state.split(" ")[0],),
                array=int(array) if array.isdecimal() else 0,
                task=int(task) if task.isdecimal() else None,
                het=int(het) if offset.isdecimal() else 0,
                offset=int(offset) if offset.isdecimal() else 0,
                nodes=nodes,
                partition=partition,
                resources=resources,
                minutes=int(minutes) if minutes.isdecimal() else 0,
                status=int(status) if status.isdecimal() else 0,
                signal=int(signal) if signal.isdecimal() else 0,
                admin_comment=comment,
            )
        )
    return jobs


def cancelled_by(name: str) -> str:
    """Return the user who cancelled a job; empty if the accounting does not know."""
    _, _, number = _sacct(name, "State").partition("\n")[0].partition("CANCELLED by ")
    if not number.strip().isdecimal():
        return ""
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, OverflowError):
        return f"user {number.strip()}"


def lost_node(name: str) -> str:
    """Return the node whose loss ended a job's last run; empty if it ended otherwise, or without accounting.

    slurmctld forgets the node when the job is in the queue again (batch_requeue_fini in job_mgr.c).
    """
    runs = [line.partition("|") for line in _sacct(name, "State,FailedNode", "-D").splitlines()]
    ended = [(state, node) for state, _, node in runs if state not in ("PENDING", "RUNNING")]
    return ended[-1][1] if ended and ended[-1][0] == "NODE_FAIL" else ""


def admin_comment(name: str) -> str:
    """Return a job's AdminComment in the accounting; empty without one."""
    return _sacct(name, "AdminComment").partition("\n")[0]


def expand(short: str) -> list[str]:
    """Return the node names of Slurm's short form. Raise SlurmError."""
    return scontrol("show", "hostnames", short).split()


def _sacct(name: str, fields: str, *options: str) -> str:
    """Return sacct's output; empty if there is no accounting."""
    try:
        return _run("sacct", *options, "-X", "-n", "-P", "-j", name, "-o", fields)
    except SlurmError:
        return ""


def used(begin: int, end: int) -> list[tuple[str, int, int]] | None:
    """Return the nodes (in Slurm's short form), start and end of each run of a job between two times.

    None without accounting, or if slurmdbd does not answer.
    """
    span = ("-S", _moment(begin), "-E", _moment(end))
    try:
        output = _run("sacct", "-a", "-D", "-X", "-n", "-P", *span, "-o", "NodeList,Start,End", SLURM_TIME_FORMAT="%s")
    except SlurmError:
        return None
    rows = [line.rsplit("|", 2) for line in output.splitlines()]
    return [
        (row[0], int(row[1]), int(row[2]) if row[2].isdecimal() else end)
        for row in rows
        if len(row) == 3 and row[1].isdecimal() and row[0] != "None assigned"
    ]


@dataclass(frozen=True)
class Held:
    """A run of a job in the accounting that had nodes; a requeued job has several.

    end       None while it runs
    seconds   how long it ran, without the time in which it was suspended
    """

    number: str
    user: str
    start: int
    end: int | None
    seconds: int
    allocated: str
    admin_comment: str


def held(begin: int, end: int, user: str = "") -> list[Held]:
    """Return runs of jobs that had nodes between two times. Raise SlurmError.

    user   only this user's jobs; by default all for root, and for others their own
    """
    whose = ("-u", user) if user else ("-a",) if os.geteuid() == 0 else ()
    fields = "JobIDRaw,User,Start,End,ElapsedRaw,AllocTRES,AdminComment"
    span = ("-S", _moment(begin), "-E", _moment(end))
    output = _run("sacct", *whose, "-D", "-X", "-n", "-P", *span, "-o", fields, SLURM_TIME_FORMAT="%s")
    rows = [line.split("|", 6) for line in output.splitlines()]
    return [
        Held(row[0], row[1], int(row[2]), int(row[3]) if row[3].isdecimal() else None, int(row[4]), *row[5:])
        for row in rows
        if len(row) == 7 and row[0].isdecimal() and row[2].isdecimal() and row[4].isdecimal()
    ]


def _moment(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def scontrol(*arguments: str) -> str:
    """Run scontrol and return its output. Raise SlurmError with its error message."""
    return _run("scontrol", *arguments)


def submit(script: str, *options: str) -> str:
    """Submit a batch script, and return the job's number. Raise SlurmError."""
    # With more clusters than one, sbatch prints the cluster after the number.
    number = _run("sbatch", "--parsable", *options, stdin=script).strip().partition(";")[0]
    if not number.isdecimal():
        raise SlurmError(f"sbatch has not printed the job's number: {number!r}; 'squeue --me' shows your jobs")
    return number


def cancel(number: str) -> None:
    """Cancel a job. Raise SlurmError."""
    _run("scancel", number)


def has_containers() -> bool:
    """Return whether jobs can run in container images here. Raise SlurmError."""
    return "--container-image" in _run("srun", "--help")


def _run(*arguments: str, stdin: str = "", **environment: str) -> str:
    done = attempt_bounded(
        *arguments,
        stdin=stdin,
        environment={"PATH": os.environ.get("PATH", run.PATH), **environment},
        limit=LIMIT_SECONDS,
        most=MOST_BYTES + 1,
        merged=False,
    )
    if done.status == 127:
        raise SlurmError(f"{arguments[0]} is not installed here; run this command on the head node")
    if done.status == 124:
        raise SlurmError(f"slurmctld has not answered for {LIMIT_SECONDS} s; see 'journalctl -u slurmctld'")
    if len(done.output) > MOST_BYTES:
        raise SlurmError(
            f"{' '.join(arguments[:3])}: more than {MOST_BYTES >> 20} MiB; 'squeue -r | wc -l' counts the jobs"
        )
    if not done.ok:
        message = " ".join((done.errors or done.output).split())
        raise SlurmError(f"{' '.join(arguments[:3])}: {message or f'exit status {done.status}'}")
    return done.output
