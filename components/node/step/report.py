"""The report of a failed step: the reason, the last lines of its log, and the next command."""

from __future__ import annotations

import errno
import os

from components.node import files
from components.node.failure import Failure
from components.node.step.step import LOG_DIR, STATE_DIR

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
        remedy = f"read {log} on {host}, then run up again" if reason else _read_and_fix(host, log)
    return "\n".join([*lines, f"next: {remedy}", ""])


def _last_lines(log: str) -> list[str]:
    try:
        return files.lines(log)[-LAST_LINES:]
    except (OSError, Failure):
        # The report must come, whatever is wrong with the disk.
        return []


def _read_and_fix(host: str, log: str) -> str:
    return f"ssh to {host}, read {log}, fix the problem, then run up again"
