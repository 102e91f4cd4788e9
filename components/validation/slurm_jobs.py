"""Submit a measurement's batch jobs side by side, wait for them, and read their output.

Runs on the head node as the user. Each job has its own folder in the user's home.
"""

import contextlib
import json
import os
import shlex
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.node import files
from components.node.accounts import as_user
from components.node.log import note
from components.node.passwd import user_named
from components.node.run import Ended
from components.node.waiting import wait_until
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job
from components.slurm_commands.slurm import SlurmError
from components.validation.job_files import PROGRAM, job_program
from components.validation.preflight.drain import ERRORS_OF_SLURM
from components.validation.this_node import attempt, remove

# Long outputs keep their start (ranks and devices) and end (the table); the middle may be a log.
OUTPUT_LIMIT = 200_000
COMMAND_SECONDS = 60
POLL_SECONDS = 0.5
# Limit for nodes to clean up after a job that has ended.
CLEAN_SECONDS = 20
# Limit for a node that refused a job to be drained, and to add the failed script to the reason.
REASON_SECONDS = 30
# The script in a job's folder that runs the job again and prints its output.
REPEAT = "repeat"
_NOT_STARTED = ("PENDING", "CONFIGURING")
_NOT_ENDED = (*_NOT_STARTED, "RUNNING", "COMPLETING", "SUSPENDED")


# A report without a job.
NO_JOB = {"job_id": None, "exit_code": None, "seconds": None, "nodes": (), "output": ""}
REFUSED = 3  # exit status: Slurm rejected a job


class Refused(Exception):
    """Slurm rejected a job; the text is its message."""


@dataclass(frozen=True)
class Limits:
    """Seconds until a job with free nodes has started, and then until it has ended."""

    start: float
    run: float


@dataclass(frozen=True)
class Order:
    """A job to submit. `files` by name go into its folder, with the program for jobs (job_files.py).

    Slurm runs `job.sh` with `arguments`.

    options   further options of sbatch
    reads     patterns of files in its folder to read after its end
    """

    folder: Path
    nodes: tuple[str, ...]
    files: Mapping[str, str]
    options: Sequence[str] = ()
    arguments: Sequence[str] = ()
    reads: Sequence[str] = ()


@dataclass
class _Job:
    order: Order
    number: int
    state: str = "PENDING"
    waited: str = ""
    begin: float = 0
    end: float = 0
    cleans: bool = False
    shown: Job | None = None


def run_jobs(orders: Iterable[Order], limits: Limits) -> list[dict[str, Any]]:
    """Run jobs side by side; return their reports for JobReport.from_json, with `files` by name. Raises Refused.

    If this program ends early, it cancels the jobs.
    """
    jobs: list[_Job] = []
    try:
        for order in orders:
            jobs.append(_submit(order))
        for job in jobs:
            _wait(job, limits)
    finally:
        for job in jobs:
            if job.state in _NOT_ENDED:
                say(f"job {job.number}: {job.waited or 'cancelled'}")
                with contextlib.suppress(SlurmError):
                    slurm.cancel(str(job.number))
    return [_report(job) for job in jobs]


def answer(measure: Callable[[Mapping[str, Any], Path], Mapping[str, Any]], _: Sequence[str]) -> int:
    """Read a task from stdin, measure in its folder, print the report for JobReport, and return the exit status.

    The task is JSON: the `plan` (components/measurement_jobs/), the `nodes` that take part, and why others are
    `absent`.
    """
    task = json.load(sys.stdin)
    # If it is terminated, it cancels its jobs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        report = measure(task, Path.home() / ".tailrack" / "validation" / task["plan"]["scope"])
    except Refused as refused:
        say(str(refused))
        return REFUSED
    absent = {**task["absent"], **report.get("absent", {})}
    sys.stdout.write(json.dumps({**report, "absent": absent}) + "\n")
    return 0


def limits_of(task: Mapping[str, Any]) -> Limits:
    """Return the limits in a task's plan."""
    return Limits(task["plan"]["start_seconds"], task["plan"]["run_seconds"])


def say(message: str) -> None:
    """Write to the log of the step."""
    sys.stderr.write(message + "\n")


def _empty(folder: Path) -> None:
    """Empty a folder but keep it: nodes that have opened it would not see a new one."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir() if not folder.is_symlink() else ():
            remove(path)


def _submit(order: Order) -> _Job:
    _empty(order.folder)
    if order.folder.is_symlink() or (order.folder.exists() and not order.folder.is_dir()):
        order.folder.unlink()
    order.folder.mkdir(parents=True, exist_ok=True)
    options = [
        # No other job on the nodes, above all no other measurement; and none of the same on the remaining nodes.
        *("--exclusive", "--no-requeue"),
        f"--nodes={len(order.nodes)}",
        f"--nodelist={','.join(order.nodes)}",
        *order.options,
        str(order.folder / "job.sh"),
        *order.arguments,
    ]
    repeat = f"{shlex.join(['sbatch', '--wait', '--output=again', *options])}\ncat again $(ls table.* 2>/dev/null)"
    texts = {**order.files, REPEAT: f"cd {shlex.quote(str(order.folder))} || exit\n{repeat}"}
    for name, data in [(PROGRAM, job_program()), *((name, f"{text}\n".encode()) for name, text in texts.items())]:
        (order.folder / name).unlink(missing_ok=True)  # writing to a FIFO would block
        (order.folder / name).write_bytes(data)
    command = ["sbatch", "--parsable", f"--output={order.folder}/output", *options]
    ended = attempt(*command, seconds=COMMAND_SECONDS, folder=order.folder)
    number = ended.output.strip().partition(";")[0]
    if not ended.ok or not number.isdecimal():
        raise Refused(f"{' '.join(command)}: {ended.errors.strip() or ended.output.strip()}")
    say(f"submitted job {number} for {', '.join(order.nodes)}")
    return _Job(order, int(number), begin=time.monotonic())


def _updated(job: _Job) -> _Job:
    """Return the job as slurmctld has it now. It may be busy for a moment; the limits end the wait."""
    if jobs := slurm.jobs_or_none(str(job.number)):
        job.shown = jobs[0]
        job.state, job.cleans = job.shown.state, "COMPLETING" in job.shown.flags[1:]
        job.end = job.end if job.cleans and job.end else time.monotonic()
    return job


def _wait(job: _Job, limits: Limits) -> None:
    if not wait_until(lambda: _updated(job).state not in _NOT_STARTED, job.begin + limits.start - time.monotonic()):
        job.waited = f"not started within {limits.start:g}s"
        say(str(job.shown))
        return
    say(f"job {job.number}: {job.state}")
    if not wait_until(lambda: job.state not in _NOT_ENDED or _updated(job).state not in _NOT_ENDED, limits.run):
        job.waited = f"not ended within {limits.run:g}s"
        return
    # The next program that checks the nodes should find them idle.
    wait_until(lambda: not job.cleans or not _updated(job).cleans, CLEAN_SECONDS)


def refusing(order: Order, shown: Job | None) -> dict[str, str]:
    """Return the nodes whose prolog refused a job, with the complete reason of their drain.

    shown   the job as slurmctld has it
    """
    end = time.monotonic() + REASON_SECONDS
    while True:
        try:
            nodes = slurm.nodes(*order.nodes)
        except SlurmError:
            nodes = []
        out = [node for node in nodes if node.out]
        # Slurm keeps this reason of a job until its prolog has ended well.
        in_prolog = shown is not None and shown.reason == "Prolog"
        if not in_prolog and not any(node.reason.startswith(ERRORS_OF_SLURM[0]) for node in out):
            return {}
        if (out and not any(node.reason in ERRORS_OF_SLURM for node in out)) or time.monotonic() >= end:
            return {node.name: f"{node.state}: {node.reason}" if node.reason else node.state for node in out}
        time.sleep(POLL_SECONDS)


def _report(job: _Job) -> dict[str, Any]:
    folder = job.order.folder
    if job.state != "COMPLETED" and (absent := refusing(job.order, job.shown)):
        return {**NO_JOB, "state": "UNAVAILABLE", "absent": absent, "files": {}}
    files = sorted(path for pattern in job.order.reads for path in folder.glob(pattern))
    return {
        "job_id": job.number,
        "state": job.state,
        "exit_code": job.shown.status if job.shown else 0,
        "signal": job.shown.signal if job.shown else 0,
        "seconds": max(0, round(job.end - job.begin)),
        # All requested nodes or none. After a job's end, Slurm lists only the nodes that are still cleaning up.
        "nodes": list(job.order.nodes) if job.shown and job.shown.nodes else [],
        "facts": {"waited": job.waited} if job.waited else {},
        "output": read_kept(folder / "output"),
        "files": {path.name: read_kept(path) for path in files},
    }


def read_kept(path: Path, limit: int = OUTPUT_LIMIT) -> str:
    """Return a regular file's text, or whole lines of its start and end within the limit; else empty.

    Other jobs can change the folder.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return ""
        if status.st_size <= limit:
            return _text(file.read(limit))
        start = _text(file.read(limit // 2))
        file.seek(-(limit // 2), os.SEEK_END)
        end = _text(file.read(limit // 2))
    return without_middle(start, end)


def without_middle(start: str, end: str) -> str:
    """Join the start and end of a text, without incomplete lines at the cut."""
    return f"{start[: start.rfind(chr(10)) + 1]}[the middle of this output is left out]\n{end[end.find(chr(10)) + 1 :]}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")


def run_as_submitter(name: str, *command: str, task: Any, limit: float, **environment: str) -> Ended:
    """Run a command with a task as JSON on its stdin, for a number of seconds."""
    user = user_named(name)
    if user is None:
        note(f"this machine has no account {name}")
        return Ended(1, "")
    return as_user(
        name,
        *command,
        limit=limit,
        most=64_000_000,
        stdin=json.dumps(task),
        environment={
            "HOME": files.on_disk(user.pw_dir),
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            **environment,
        },
    )
