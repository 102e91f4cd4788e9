"""The command `minute`: start the tasks of roles that are due here, each in a unit that exists only while it runs.

    tailrack-minute           as root, once a minute by a timer
    tailrack-minute NAME...   run these tasks now, one after the other, and wait for them

A task that hangs or fails affects no other task. Its unit, tailrack-NAME.service, then stays in systemd's list of
failed units until the next run.
"""

import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.node import files, systemd
from components.node.failure import Failure, do_each, run_program
from components.node.locks import PRIVATE, Lock
from components.node.log import STATE_DIR
from components.node.run import Ended, attempt, run
from components.node.waiting import sleep

PROGRAM = "/usr/local/sbin/tailrack-minute"
SERVICE, TIMER = "tailrack-minute.service", "tailrack-minute.timer"
# One file per step that brings tasks, with their rows as JSON.
FOLDER = "/etc/tailrack/tasks"
# In the environment of tasks that one run of this program has started: they share Slurm's answer (sll/snapshot.py).
RUN = "TAILRACK_RUN"
_ANSWER = f"{PRIVATE}/slurm-answer.json"
# The last start of each task with a longer period than a minute.
_MARKS, _LONG_MARKS = f"{PRIVATE}/minute", f"{STATE_DIR}/minute"
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_THIS_RUN = f"{time.time():.3f}-{os.getpid()}"


@dataclass(frozen=True)
class Task:
    """A program that a machine runs again and again. A machine without the program skips it.

    name       its unit is tailrack-NAME.service
    command    the program's path and its arguments
    seconds    its period: a minute, or more
    limit      seconds until it is ended; 0 for none
    settings   settings of its unit, such as `Nice=10`
    needs      a file, or a folder with anything in it; without it the task does not run
    at_once    whether a task with a long period first runs at boot, and not within its period
    sources    of a task of each minute: it runs only if one of these files is newer than `target`, which it writes
    """

    name: str
    command: Sequence[str]
    seconds: int = _MINUTE
    limit: int = 0
    settings: Sequence[str] = ()
    needs: str = ""
    at_once: bool = False
    sources: Sequence[str] = ()
    target: str = ""

    @property
    def unit(self) -> str:
        return f"tailrack-{self.name}.service"

    @property
    def possible(self) -> bool:
        """Return whether the program is here, and what it needs."""
        if not files.exists(self.command[0]):
            return False
        return not self.needs or bool(
            files.names_in(self.needs) if files.is_folder(self.needs) else files.exists(self.needs)
        )


def write_tasks(key: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the tasks that a step brings, and end those that it no longer brings."""
    if not files.exists(PROGRAM):
        return
    path = f"{FOLDER}/{key}.json"
    former = {task.unit for task in _read(path)}
    changed = files.write(path, json.dumps(rows))
    tasks = {task.unit for task in _read(path)}
    if ended := sorted(former - tasks):
        attempt("systemctl", "stop", *ended, quiet=True)
    systemd.reload(SERVICE, TIMER)
    systemd.enable(TIMER, now=True)
    if changed:
        run("systemctl", "start", "--no-block", SERVICE)


def end_tasks() -> None:
    """Start no more tasks, and end those that run: the machine leaves."""
    units = [task.unit for task in _tasks()]
    do_each(lambda: systemd.retire(TIMER, SERVICE), lambda: units and attempt("systemctl", "stop", *units, quiet=True))


def begin_task(name: str) -> None:
    """Start a task now if it does not run, without waiting for it."""
    for task in _tasks():
        if task.name == name and task.possible:
            _start(task)


def shared_answer(ask: Callable[[], list[str]]) -> list[str]:
    """Return Slurm's answer, which all tasks of one run share: the first that needs it asks."""
    if not (begun := os.environ.get(RUN)):
        return ask()
    with Lock("slurm-answer"):
        try:
            stored = json.loads(files.read(_ANSWER) or "{}")
        except ValueError:
            stored = {}
        if stored.get("run") != begun:
            stored = {"run": begun, "answer": ask()}
            _record(_ANSWER, json.dumps(stored))
        answer: list[str] = stored["answer"]
        return answer


def main(arguments: Sequence[str]) -> int:
    """Start the tasks that are due, or run the named ones."""
    return run_program("tailrack-minute", lambda: _run_named(arguments) if arguments else _start_due())


def _start_due() -> int:
    status = 0
    for task in _tasks():
        try:
            if task.possible and _is_due(task):
                _start(task)
        except (Failure, OSError) as error:
            sys.stderr.write(f"{task.unit} does not start: {error}\n")
            status = 1
    return status


def _run_named(names: Sequence[str]) -> int:
    tasks = {task.name: task for task in _tasks()}
    if unknown := [name for name in names if name not in tasks]:
        raise Failure(f"there is no task {', '.join(unknown)} here", f"name one of {', '.join(sorted(tasks))}")
    return max([0, *(_run_now(tasks[name]) for name in names if tasks[name].possible)])


def _run_now(task: Task) -> int:
    """Run a task, after a run of it that began before, and return its exit status."""
    while _runs(ended := _begin(task, limit=_DAY)):
        sleep(0.2)
    sys.stderr.write(ended.errors)
    return ended.status


def _start(task: Task) -> None:
    """Start a task that does not run yet. Raises Failure."""
    ended = _begin(task, "--no-block", limit=_MINUTE)
    if ended.ok:
        _note_start(task)
    elif not _runs(ended):
        raise Failure(ended.errors.strip())


def _begin(task: Task, *options: str, limit: int) -> Ended:
    attempt("systemctl", "reset-failed", task.unit, quiet=True)
    settings = ("Type=oneshot", f"TimeoutStartSec={task.limit or 'infinity'}", *task.settings)
    names = (f"--unit={task.unit}", f"--description=Task {task.name}", f"--setenv={RUN}={_THIS_RUN}")
    words = (*names, *options, *(word for setting in settings for word in ("-p", setting)), *task.command)
    return attempt("systemd-run", "-q", *words, keep_errors=True, limit=limit)


def _runs(ended: Ended) -> bool:
    """Return whether systemd refused to start a unit because it runs."""
    return not ended.ok and "already loaded" in ended.errors


def _is_due(task: Task) -> bool:
    """Return whether a task's source has changed, or its new period has begun, which differs between machines."""
    if task.seconds <= _MINUTE:
        return not task.target or any(files.is_newer(path, task.target) for path in task.sources)
    try:
        last = float(files.read(_mark(task)) or "")
    except ValueError:
        if not task.at_once:
            _note_start(task)
        return task.at_once
    offset = zlib.crc32(f"{os.uname().nodename} {task.name}".encode()) % task.seconds
    return (time.time() + offset) // task.seconds != (last + offset) // task.seconds


def _note_start(task: Task) -> None:
    if task.seconds > _MINUTE:
        files.make_folder(_mark(task).rpartition("/")[0], 0o700)
        _record(_mark(task), str(time.time()))


def _record(path: str, text: str) -> None:
    """Write a record of root's, without a line in the journal for each."""
    with os.fdopen(files.open_to_write(path), "w") as stream:
        stream.write(text)


def _mark(task: Task) -> str:
    return f"{_LONG_MARKS if task.seconds >= _HOUR else _MARKS}/{task.name}"


def _tasks() -> list[Task]:
    return [task for name in files.names_in(FOLDER) for task in _read(f"{FOLDER}/{name}")]


def _read(path: str) -> list[Task]:
    return [Task(**row) for row in json.loads(files.read(path) or "[]")]
