"""Run a program as another account, the only way for root to do so.

A process with the same uid can stop the program, trace it, take its descriptors, let it run forever, and leave children
that keep its descriptors. So the program has only three open streams, none of which leads to a file of root's; it has
its own session, so no terminal, and none of root's environment; and root reads its output up to a number of bytes and
seconds.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import BinaryIO

from components.node import run as running
from components.node.run import Ended


def as_user(
    name: str,
    *arguments: str,
    limit: float,
    most: int = 65536,
    stdin: str | BinaryIO = "",
    environment: Mapping[str, str] | None = None,
    into: BinaryIO | None = None,
) -> Ended:
    """Run a program as an account. Its errors are written to the log, up to `most` bytes.

    limit   seconds; then it is killed, and the status is 124
    most    the greatest number of bytes of output
    into    a file of root's that gets the output, for more than fits into memory
    stdin   text, or a file that the account may read
    """
    more = ["env", *(f"{key}={value}" for key, value in environment.items())] if environment else []
    # The input exists before the program starts, in a file without a name: nothing waits for a reader.
    with tempfile.TemporaryFile() as file:
        if isinstance(stdin, str):
            file.write(stdin.encode())
            file.seek(0)
        process = subprocess.Popen(
            ["runuser", "-u", name, "--", *more, *arguments],
            stdin=(file if isinstance(stdin, str) else stdin) if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": running.PATH, "HOME": "/", "USER": name, "LOGNAME": name, "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
    try:
        output, errors, in_time = _read(process, limit, most, into)
    except OSError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if not in_time:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        status = process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    if errors:
        sys.stderr.write(errors.decode("utf-8", "replace"))
    return Ended(status if in_time else 124, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))


def _read(
    process: subprocess.Popen[bytes], limit: float, most: int, into: BinaryIO | None
) -> tuple[bytes, bytes, bool]:
    """Read both streams until the program ends. Return their first bytes, and whether it ended in time.

    A child that keeps a stream open after the program has ended is not waited for.
    """
    end = time.monotonic() + limit
    parts: dict[int, bytearray] = {0: bytearray(), 1: bytearray()}
    streams = [stream for stream in (process.stdout, process.stderr) if stream]
    with selectors.DefaultSelector() as selector, streams[0], streams[1]:
        for number, stream in enumerate(streams):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, number)
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                return bytes(parts[0]), bytes(parts[1]), False
            ended = process.poll() is not None
            ready = selector.select(0 if ended else min(left, 1))
            if not ready and ended:
                break
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                if data and into and key.data == 0:
                    into.write(data[: most - into.tell()])
                    continue
                part = parts[key.data]
                part += data[: most - len(part)]
                if not data or len(part) == most:
                    # Whoever writes more is told so by a closed pipe.
                    selector.unregister(key.fileobj)
                    streams[key.data].close()
    try:
        process.wait(max(end - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return bytes(parts[0]), bytes(parts[1]), False
    return bytes(parts[0]), bytes(parts[1]), True
