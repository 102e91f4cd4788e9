"""Run a function in a process of its own with a time limit: a broken GPU can hold a process for ever."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_POLL_SECONDS = 0.02
# Seconds until a killed process counts as one that the kernel cannot end. It is left behind.
_END_SECONDS = 2


def apart(work: Callable[[], Any], limit: float) -> Any:
    """Return the result of a function, which JSON can carry; None if it raises or does not end in time."""
    with tempfile.TemporaryFile() as file:
        process = os.fork()
        if process == 0:
            _child(work, file.fileno())
        end = time.monotonic() + limit
        while not _ended(process):
            if time.monotonic() > end:
                _kill(process)
                return None
            time.sleep(_POLL_SECONDS)
        file.seek(0)
        with suppress(ValueError):
            return json.loads(file.read() or b"null")
        return None


def _child(work: Callable[[], Any], result: int) -> None:
    status = 1
    try:
        os.setsid()
        # A process that is left behind must not keep the job's output open.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.write(result, json.dumps(work()).encode())
        status = 0
    finally:
        os._exit(status)


def _ended(process: int) -> bool:
    return os.waitpid(process, os.WNOHANG)[0] != 0


def _kill(process: int) -> None:
    with suppress(OSError):
        os.killpg(process, signal.SIGKILL)
    end = time.monotonic() + _END_SECONDS
    while not _ended(process) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
