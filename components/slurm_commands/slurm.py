"""Every call of Slurm's commands in Python. Works with Slurm 23.11 and later.

Functions that raise SlurmError are for people; others return False or None where slurmctld does not agree or answer.
Nodes and jobs come as JSON. squeue, sinfo and sacct print chosen fields: a text that users choose is asked for alone.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.node import run
from components.node.failure import Failure
from components.node.run import Ended, attempt, attempt_bounded, succeeds
from components.slurm_commands.jobs import Job, read_jobs, with_parts
from components.slurm_commands.nodes import Node, read_nodes

LIMIT_SECONDS = 30
# slurmctld may be busy for longer than a person waits.
_BUSY_SECONDS = 120
_RECONFIGURE_SECONDS = 600
_JOB_SECONDS = 20
_RESERVED = re.compile(r" Nodes=(\S+) ")
# An answer of 25,000 jobs. Read as JSON, it takes several times as much memory.
MOST_BYTES = 256 << 20


class SlurmError(Failure):
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


def node(name: str, limit: float = _BUSY_SECONDS) -> Node | None:
    """Return a node; None if slurmctld does not have it or does not answer."""
    shown = attempt("scontrol", "show", "node", name, "--json", limit=limit, quiet=True)
    try:
        return next(iter(read_nodes(shown.output)), None)
    except ValueError:
        return None


def has_node(name: str, limit: float = _BUSY_SECONDS) -> bool:
    """Return whether slurmctld has a node."""
    return succeeds("scontrol", "show", "node", name, limit=limit)


def ping(limit: float = _BUSY_SECONDS) -> Ended:
    """Ask whether slurmctld answers: `is UP` or `is DOWN`; neither if scontrol cannot read the files itself."""
    return attempt("scontrol", "ping", limit=limit, keep_errors=True)


def reconfigure() -> bool:
    """Have slurmctld read its files again."""
    return attempt("scontrol", "reconfigure", limit=_RECONFIGURE_SECONDS).ok


def config(key: str, limit: float = _BUSY_SECONDS) -> str | None:
    """Return a value of slurmctld's configuration; empty without it, None without an answer."""
    shown = attempt("scontrol", "show", "config", limit=limit, quiet=True)
    value = re.search(rf"^{key} *= *(.*)$", shown.output, re.MULTILINE)
    return (value[1] if value else "") if shown.ok else None


def topology() -> str | None:
    """Return slurmctld's switches as text; None without an answer."""
    # No argument: since 25.05 it would name a topology and not a switch.
    shown = attempt("scontrol", "show", "topology", quiet=True)
    return shown.output if shown.ok else None


def reserved_nodes(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the nodes of a reservation in Slurm's short form; empty without it."""
    show = ("scontrol", "-o", "show", "reservation", name)
    nodes = _RESERVED.search(attempt(*show, limit=_JOB_SECONDS, environment=environment, quiet=True).output)
    return nodes[1] if nodes else ""


def reserve(name: str, **words: str) -> Ended:
    """Reserve nodes for root, and return how that ended. Running jobs go on."""
    words = {"reservationname": name, "starttime": "now", **words, "users": "root", "flags": "maint,ignore_jobs"}
    return attempt("scontrol", "create", "reservation", *_words(words), limit=LIMIT_SECONDS, keep_errors=True)


def remove_reserved(name: str, node: str) -> bool:
    """Take a node out of a reservation."""
    return attempt("scontrol", "update", f"reservationname={name}", f"nodes-={node}", limit=_BUSY_SECONDS).ok


def delete(*, limit: float = _BUSY_SECONDS, environment: Mapping[str, str] | None = None, **which: str) -> bool:
    """Delete a node or a reservation."""
    return attempt("scontrol", "delete", *_words(which), limit=limit, environment=environment).ok


def requeue(job: str, how: str = "requeue") -> bool:
    """Return a job to the queue; or keep it from starting there (`requeuehold`), or let it start (`release`)."""
    return attempt("scontrol", how, job, limit=_JOB_SECONDS).ok


def end(*words: str, environment: Mapping[str, str] | None = None) -> bool:
    """End a job or a step."""
    return attempt("scancel", *words, limit=_JOB_SECONDS, environment=environment).ok


def squeue(form: str, *filters: str, **options: Any) -> list[list[str]] | None:
    """Return rows of jobs; None if slurmctld does not answer. `form`: fields without blanks but the last one."""
    return _rows("squeue", filters, form, **options)


def sinfo(form: str, *filters: str, **options: Any) -> list[list[str]] | None:
    """Return rows of nodes or partitions, like squeue."""
    return _rows("sinfo", filters, form, **options)


def _rows(
    program: str, filters: Sequence[str], form: str, limit: float = _BUSY_SECONDS, **options: Any
) -> list[list[str]] | None:
    ended = attempt(program, "-h", *filters, "-o", form, limit=limit, **options)
    splits = len(form.split()) - 1
    return [line.split(None, splits) for line in ended.output.splitlines() if line.strip()] if ended.ok else None


def all_jobs() -> list[Job]:
    """Return all jobs that slurmctld has. Raise SlurmError."""
    try:
        return read_jobs(scontrol("show", "jobs", "--json"))
    except ValueError:
        raise SlurmError("scontrol does not print jobs as JSON here; see 'scontrol show jobs --json'") from None


def jobs_or_none(name: str, limit: float = LIMIT_SECONDS) -> list[Job] | None:
    """Return a job, or all tasks of an array; None if slurmctld does not answer or no longer has it."""
    try:
        return read_jobs(_run("scontrol", "show", "job", name, "--json", limit=limit))
    except (SlurmError, ValueError):
        return None


def update(*, limit: float = _BUSY_SECONDS, quiet: bool = False, **changes: str) -> bool:
    """Change what the first word names, such as `nodename="a1", state="drain"`, and return whether slurmctld did it."""
    return attempt("scontrol", "update", *_words(changes), limit=limit, quiet=quiet).ok


def _words(values: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def set_parts(job: Job, **parts: object) -> bool:
    """Set parts of a job's AdminComment; None removes one. Return whether slurmctld did it."""
    comment = with_parts(job.admin_comment, **parts)
    return update(jobid=job.title, admincomment=comment, limit=_JOB_SECONDS, quiet=True)


def notify(job: str, message: str, environment: Mapping[str, str] | None = None) -> None:
    """Write a line to a job's stderr. slurmd does it as the job's user."""
    attempt("scontrol", "notify", job, message, limit=_JOB_SECONDS, environment=environment, quiet=True)


def _from_accounting(name: str) -> list[Job]:
    """Return a job that slurmctld no longer knows, with the fields that the accounting keeps."""
    output = sacct(name, "JobIDRaw,JobID,User,State,ExitCode,NodeList,Partition,ReqTRES,TimelimitRaw,AdminComment")
    # A user chose it, and it may contain anything: it is asked for alone. All tasks of an array have the same.
    job_name = sacct(name, "JobName").partition("\n")[0]
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
    _, _, number = sacct(name, "State").partition("\n")[0].partition("CANCELLED by ")
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
    runs = [line.partition("|") for line in sacct(name, "State,FailedNode", "-D").splitlines()]
    ended = [(state, node) for state, _, node in runs if state not in ("PENDING", "RUNNING")]
    return ended[-1][1] if ended and ended[-1][0] == "NODE_FAIL" else ""


def admin_comment(name: str) -> str:
    """Return a job's AdminComment in the accounting; empty without one."""
    return sacct(name, "AdminComment").partition("\n")[0]


def expand(short: str) -> list[str]:
    """Return the node names of Slurm's short form. Raise SlurmError."""
    return scontrol("show", "hostnames", short).split()


def sacctmgr(*words: str, stdin: str = "", limit: float = LIMIT_SECONDS, configuration: str = "") -> Ended:
    """Ask or change slurmdbd. `configuration`: another slurm.conf."""
    environment = {"SLURM_CONF": configuration} if configuration else None
    return attempt("sacctmgr", *words, stdin=stdin, limit=limit, environment=environment, keep_errors=True)


def sacct(name: str, fields: str, *options: str) -> str:
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


def _run(*arguments: str, stdin: str = "", limit: float = LIMIT_SECONDS, **environment: str) -> str:
    done = attempt_bounded(
        *arguments,
        stdin=stdin,
        environment={"PATH": os.environ.get("PATH", run.PATH), **environment},
        limit=limit,
        most=MOST_BYTES + 1,
        merged=False,
    )
    if done.status == 127:
        raise SlurmError(f"{arguments[0]} is not installed here; run this command on the head node")
    if done.status == 124:
        raise SlurmError(f"slurmctld has not answered for {limit:.0f} s; see 'journalctl -u slurmctld'")
    if len(done.output) > MOST_BYTES:
        raise SlurmError(
            f"{' '.join(arguments[:3])}: more than {MOST_BYTES >> 20} MiB; 'squeue -r | wc -l' counts the jobs"
        )
    if not done.ok:
        message = " ".join((done.errors or done.output).split())
        raise SlurmError(f"{' '.join(arguments[:3])}: {message or f'exit status {done.status}'}")
    return done.output
