"""Batch jobs of a measurement: submitted side by side as the user who runs this, waited for, and read.

Runs on the head node. What a job leaves lies in a folder of its own in the user's home.
"""

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Of an output: the start, which names ranks and devices, and the end, which is the table. What may be between is a log.
OUTPUT_LIMIT = 200_000
COMMAND_SECONDS = 60
POLL_SECONDS = 0.5
# That nodes may clean up after a job that has ended, before nobody waits for them any more.
CLEAN_SECONDS = 20
_NOT_STARTED = ("PENDING", "CONFIGURING")
_NOT_ENDED = (*_NOT_STARTED, "RUNNING", "COMPLETING", "SUSPENDED")


class Refused(Exception):
    """Slurm did not take a job; the text is what it said."""


@dataclass(frozen=True)
class Limits:
    """Seconds until a job whose nodes are free has started, and until it has ended after that."""

    start: float
    run: float


@dataclass(frozen=True)
class Order:
    """A job to be submitted: files by name go into its folder, `job.sh` among them, which is given `arguments`.

    nodes     all of them take part
    options   further ones of sbatch
    reads     whether a name of a file that the job leaves in its folder is to be read when it has ended
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
    shown: Mapping[str, Any] = field(default_factory=dict)


def run_jobs(orders: Iterable[Order], limits: Limits) -> list[dict[str, Any]]:
    """Run jobs side by side, and return of each what JobReport.from_json reads, and `files` by name. Raises Refused.

    When this program is ended before the jobs, so are they.
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
                say(f"job {job.number}: {job.waited or 'not waited for any longer'}")
                _command("scancel", str(job.number))
    return [_report(job) for job in jobs]


def say(words: str) -> None:
    """Write to the log of the step."""
    sys.stderr.write(words + "\n")


def _command(*words: str, folder: Path | None = None) -> str:
    """What a command prints; empty where it fails, with what it said in the log."""
    done = _run(words, folder)
    if done.returncode:
        say(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
        return ""
    return done.stdout


def _run(words: Sequence[str], folder: Path | None) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            words, cwd=folder, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 124, "", str(error))


def _empty(folder: Path) -> None:
    """Take everything out of a folder, which stays the one that it is: nodes that have looked into it know no other."""
    with contextlib.suppress(OSError):
        for each in os.scandir(folder) if not folder.is_symlink() else ():
            if each.is_dir(follow_symlinks=False):
                shutil.rmtree(each.path, ignore_errors=True)
            else:
                Path(each.path).unlink()


def _submit(order: Order) -> _Job:
    _empty(order.folder)
    if order.folder.is_symlink() or (order.folder.exists() and not order.folder.is_dir()):
        order.folder.unlink()
    order.folder.mkdir(parents=True, exist_ok=True)
    for name, text in order.files.items():
        (order.folder / name).unlink(missing_ok=True)  # a FIFO would be waited for
        (order.folder / name).write_text(text + "\n", encoding="utf-8")
    words = [
        "sbatch",
        "--parsable",
        f"--output={order.folder}/output",
        f"--nodes={len(order.nodes)}",
        f"--nodelist={','.join(order.nodes)}",
        *order.options,
        str(order.folder / "job.sh"),
        *order.arguments,
    ]
    done = _run(words, order.folder)
    number = done.stdout.strip().partition(";")[0]
    if done.returncode or not number.isdecimal():
        raise Refused(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    say(f"submitted job {number} for {', '.join(order.nodes)}")
    return _Job(order, int(number), begin=time.monotonic())


def _look(job: _Job) -> None:
    told = _command("scontrol", "show", "job", str(job.number), "--json")
    try:
        job.shown = json.loads(told)["jobs"][0]
        state = job.shown["job_state"]
        states = state if isinstance(state, list) else str(state).split("+")
        job.state, job.cleans = str(states[0]), "COMPLETING" in states[1:]
    except (ValueError, LookupError, TypeError):
        return  # slurmctld may be busy for a moment; the limits end this
    job.end = job.end if job.cleans and job.end else time.monotonic()


def _wait(job: _Job, limits: Limits) -> None:
    _look(job)
    while job.state in _NOT_STARTED:
        if time.monotonic() - job.begin >= limits.start:
            job.waited = f"not started within {limits.start:g}s"
            say(_command("scontrol", "show", "job", str(job.number)))
            return
        time.sleep(POLL_SECONDS)
        _look(job)
    say(f"job {job.number}: {job.state}")
    begin = time.monotonic()
    while job.state in _NOT_ENDED:
        if time.monotonic() - begin >= limits.run:
            job.waited = f"not ended within {limits.run:g}s"
            return
        time.sleep(POLL_SECONDS)
        _look(job)
    # Who looks at the nodes when all is measured finds them idle.
    begin = time.monotonic()
    while job.cleans and time.monotonic() - begin < CLEAN_SECONDS:
        time.sleep(POLL_SECONDS)
        _look(job)


def _report(job: _Job) -> dict[str, Any]:
    folder = job.order.folder
    files = sorted(path for pattern in job.order.reads for path in folder.glob(pattern))
    return {
        "job_id": job.number,
        "state": job.state,
        "exit_code": _exit_code(job.shown),
        "seconds": max(0, round(job.end - job.begin)),
        # All that were asked for, or none. Slurm lists those that have still to clean up alone once the job has ended.
        "nodes": list(job.order.nodes) if job.shown.get("nodes") else [],
        "facts": {"waited": job.waited} if job.waited else {},
        "output": read_kept(folder / "output"),
        "files": {path.name: read_kept(path) for path in files},
    }


def _exit_code(shown: Mapping[str, Any]) -> int:
    code: Any = shown.get("exit_code")
    for key in ("return_code", "number"):
        code = code.get(key) if isinstance(code, Mapping) else code
    return code if isinstance(code, int) else 0


def read_kept(path: Path, limit: int = OUTPUT_LIMIT) -> str:
    """A regular file's text: all of it, or as many whole lines of its start and its end as the limit has room for.

    Empty where there is no such file: what lies there is in other jobs' hands too.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return ""
        if found.st_size <= limit:
            return _text(file.read(limit))
        start = _text(file.read(limit // 2))
        file.seek(-(limit // 2), os.SEEK_END)
        end = _text(file.read(limit // 2))
    return kept(start, end)


def kept(start: str, end: str) -> str:
    """The start and the end of a text, without the line at each that may be a half one."""
    return f"{start[: start.rfind(chr(10)) + 1]}[the middle of this output is left out]\n{end[end.find(chr(10)) + 1 :]}"


def _text(found: bytes) -> str:
    return found.decode("utf-8", errors="replace")
