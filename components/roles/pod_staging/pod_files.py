"""The command `pod-files`, on a pod: run rsync for the head node, which brings or fetches a job's folder.

Its stdin begins with a line of JSON; the rest is rsync's protocol, in which the head node names the user and the path.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence

from components.node import run
from components.node.waiting import wait_until
from components.roles.pod_staging.steps import steps

_MOST_BYTES = 4096
_ARGUMENT = re.compile(r"--server|--sender|-[A-Za-z0-9.]+|--[a-z][a-z-]*(=[A-Za-z0-9,+-]*)?|\.")
# Slurm ends a job's processes and fetches its results at the same time. KillWait is at most 600 s.
_END_SECONDS = 620


def main(_: Sequence[str]) -> int:
    """Become rsync."""
    header = json.loads(_first_line())
    arguments = [str(argument) for argument in header["arguments"]]
    if arguments[:1] != ["--server"] or not all(map(_ARGUMENT.fullmatch, arguments)):
        sys.stderr.write("this is not a request of rsync\n")
        return 2
    if "--sender" in arguments:
        job = int(header["job"])
        wait_until(lambda: not runs(job), _END_SECONDS)
    environment = {"PATH": run.PATH, "HOME": "/", "LC_ALL": "C.UTF-8"}
    return os.execvpe("rsync", ["rsync", *arguments], environment)  # noqa: S606


def _first_line() -> bytes:
    # One byte at a time: the rest is rsync's.
    line = b""
    while len(line) < _MOST_BYTES and (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line


def runs(job: int) -> bool:
    """Return whether a step of a job has not ended on this machine."""
    return any(of == job for _, of, _ in steps())
