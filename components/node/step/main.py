"""The commands `step`: read a plan and a request, run the step, print its answer; and `kept`: run a plan kept here.

    step up|down|recall [here]
    kept NAME [ACTION]

Stdin has two lines of JSON: the plan (work.py), and the request: `name`, `host`, `lock`, `repair` and `values`. A text
that was cut off on its way is no JSON, and nothing happens. `here` says that the step is a local command.

Only this process has the connection's stdout and stderr. Everything that the step starts writes to its log, so no
program can answer for the step or keep the connection open.

A step leaves a plan in a file, such as that of `tailrack-leave`. A person or a timer runs it, and reads its output.
"""

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from components.node import files, run, systemd
from components.node.failure import Failure
from components.node.fetch import proxy_variables
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.step.step import LOG_DIR, STATE_DIR, Step
from components.node.step.work import Plan, Work, read_plan, remember_how, undone_elsewhere

LAST_LINES = 15


def report(host: str, name: str, failure: Failure) -> str:
    """Return the report, several lines. `failure`: with an empty reason for an unexpected error."""
    log = f"{LOG_DIR}/{name}.log"
    reason, remedy = failure.reason, failure.remedy
    # A full disk can cause any failure, and the log may be missing.
    for folder in (LOG_DIR, STATE_DIR, "/etc", "/var"):
        try:
            error = files.room_error(folder)
        except Failure as unsafe:
            # Another account can change the folder. That also made the step fail, unless it has another reason.
            reason, remedy = reason or unsafe.reason, remedy or f"{unsafe.remedy}, then run up again"
            break
        if error:
            reason = f"{reason}; {folder}: {error}" if reason else f"{folder}: {error}"
            writable = f"make {folder} on {host} writable (see 'findmnt -T {folder}')"
            room = f"make room in {folder} on {host} (see 'df -h {folder}')"
            remedy = f"{writable if error == os.strerror(errno.EROFS) else room}, then run up again"
            break
    lines = [f"tailrack: {host}: step {name} failed{f': {reason}' if reason else ''}"]
    if last := _last_lines(log):
        lines += [f"--- last lines of {log} on {host}", *last, "---"]
    if not remedy:
        fix = f"ssh to {host}, read {log}, fix the problem, then run up again"
        remedy = f"read {log} on {host}, then run up again" if reason else fix
    return "\n".join([*lines, f"next: {remedy}", ""])


def _last_lines(log: str) -> list[str]:
    try:
        return files.lines(log)[-LAST_LINES:]
    except (OSError, Failure):
        # The report must come, whatever is wrong with the disk.
        return []


# The exit status for a text that is no plan and request.
NO_REQUEST = 75
# Optional services get a lower priority than nodes' steps on this host, slurmctld, the share and jobs.
SERVICES_LOCK = "tailrack-services"
_SERVICES_PRIORITY = 5
# The folder of kept plans, and the one whose calls go on after an error.
PLANS, LEAVE = "/etc/tailrack/plans", "leave"
# The archive that has this module.
PROGRAM = Path(__file__).parents[3]
# Folders that users read. Secret files and folders in them have their own modes.
_OPEN_FOLDERS = (STATE_DIR, "/etc/tailrack", "/usr/local/lib/tailrack")


def main(arguments: Sequence[str], stream: BinaryIO | None = None) -> int:
    """Run a step and return the exit status."""
    action, *here = arguments
    try:
        plan_line, request_line = (stream or sys.stdin.buffer).read().decode().split("\n", 1)
        plan, request = read_plan(plan_line), json.loads(request_line)
    except (ValueError, TypeError):
        sys.stderr.write("the plan or the values of this step did not arrive whole; nothing was done\n")
        return NO_REQUEST
    # Hardened images give logins 027 or 077, and sudo keeps it: users and apt could not read the folders.
    os.umask(0o022)
    os.environ.update({"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "PATH": run.PATH})
    signal.signal(signal.SIGTERM, _stopped)
    step = Step(request["host"], request["name"], request["repair"])
    # These are copies that no child process inherits.
    stdout, stderr = os.dup(1), os.dup(2)
    try:
        prepare_folders()
        _redirect(files.open_to_write(f"{LOG_DIR}/{step.name}.log", 0o644))
        files.sync_at_end()
        perform(step, plan, request["values"], request["lock"], action, here=here == ["here"])
        files.sync()
    except Failure as failure:
        return _fail(stderr, step, failure)
    except Exception as error:  # noqa: BLE001 its traceback is in the log, and the operator gets the log's end
        # The disk of the log may be full.
        with suppress(OSError, ImportError):
            import traceback

            traceback.print_exc()
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else ""
        return _fail(stderr, step, Failure(reason))
    os.write(stdout, f"{json.dumps(step.results, ensure_ascii=False)}\n".encode())
    return 0


def perform(step: Step, plan: Plan, values: Mapping[str, Any], lock: str, action: str, *, here: bool = False) -> None:
    """Run an action of a step. Raises Failure.

    lock   the lock that the step holds from its beginning; empty if it locks the host only for its changes
    """
    begin = time.monotonic()
    os.environ.update(proxy_variables())
    if lock:
        step.take_lock(lock)
    if lock == SERVICES_LOCK:
        os.setpriority(os.PRIO_PROCESS, 0, _SERVICES_PRIORITY)
    note(f"{step.name} {action} on {step.host}{f', repair: {step.repair}' if step.repair else ''}")
    if action == "up":
        remember_how(step, here=here)
    if action == "down" and undone_elsewhere(step, here=here):
        note("another step of this name has replaced this one: nothing to undo")
    else:
        Work(step, plan, {**plan.texts, **values}).do(action)
        if lock == SERVICES_LOCK and action == "up":
            systemd.require_services(step.host)
        if action == "down":
            step.result("left", True)
    note(f"done in {time.monotonic() - begin:.0f}s")


def prepare_folders() -> None:
    """Make the folders of steps, and open them to users."""
    files.make_folder(PRIVATE, 0o700)
    files.make_folder(LOG_DIR)
    files.make_folder(STATE_DIR)
    for folder in _OPEN_FOLDERS[1:]:
        if files.is_folder(folder):
            files.make_folder(folder)


def _redirect(log: int) -> None:
    os.dup2(log, 1)
    os.dup2(log, 2)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _fail(stderr: int, step: Step, failure: Failure) -> int:
    os.write(stderr, report(step.host, step.name, failure).encode("utf-8", "replace"))
    return 1


def _stopped(number: int, frame: FrameType | None) -> None:
    raise Failure("it was stopped by its time limit or by hand")


def keep(name: str, plan: str, request: str) -> None:
    """Leave a plan on this machine, and `tailrack-<name>`, which runs it with the program of this step."""
    command = f'#!/bin/sh\nexec /usr/bin/python3 -I -S {PROGRAM} kept {name} "$@"'
    plan_file = files.File(f"{PLANS}/{name}.json", f"{plan}\n{request}")
    files.write_all([plan_file, files.File(f"/usr/local/sbin/tailrack-{name}", command, 0o755)])


def run_kept(arguments: Sequence[str]) -> int:
    """Run a kept plan and return the exit status."""
    name = arguments[0]
    os.umask(0o022)
    os.environ.update({"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "PATH": run.PATH, **proxy_variables()})
    text = files.read(f"{PLANS}/{name}.json")
    if text is None:
        sys.stderr.write(f"there is no {PLANS}/{name}.json\n")
        return 1
    plan_line, request_line = text.split("\n", 1)
    request = json.loads(request_line)
    step = Step(request["host"], f"tailrack-{name}", "")
    plan = read_plan(plan_line)
    work = Work(step, plan, {**plan.texts, **request["values"]})
    try:
        work.do(arguments[1] if len(arguments) > 1 else name, keep_going=name == LEAVE)
    except Failure as failure:
        sys.stderr.write(f"tailrack-{name}: {failure.reason or 'stopped'}; next: {failure.remedy or 'see above'}\n")
        return 1
    if name == LEAVE:
        sys.stdout.write("left\n")
    return 0
