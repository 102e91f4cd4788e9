"""Run a program that may print any amount, such as the messages of a hostile server, and keep little of it."""

from __future__ import annotations

import os
import select
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import BinaryIO

from components.node import run as running
from components.node.run import Ended, end_group

# Bytes at the end of a program's errors, where the reason is.
_MOST_ERRORS = 65536
_CHUNK = 65536


def attempt_bounded(
    *arguments: str,
    limit: float,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    most: int = 0,
    merged: bool = True,
) -> Ended:
    """Run a program, and return how it ended, with the beginning of its output and the end of its errors.

    stdin    a short text
    limit    seconds; then it and its children are ended, and the status is 124
    most     the number of bytes of its output that are returned
    merged   its output counts as errors too
    """
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            env={**os.environ, "PATH": running.PATH, **(environment or {})},
            start_new_session=True,
        )
    except OSError as error:
        return Ended(127, "", f"{arguments[0]}: {error.strerror}")
    if process.stdin:
        with suppress(BrokenPipeError), process.stdin as stream:
            stream.write(stdin.encode())
    output, errors, in_time = bytearray(), b"", False
    try:
        end = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            for stream in filter(None, (process.stdout, process.stderr)):
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map() and (left := end - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    data = os.read(key.fd, _CHUNK)
                    if not data:
                        selector.unregister(key.fileobj)
                    if key.fileobj is process.stdout:
                        output += data[: most - len(output)]
                    if merged or key.fileobj is process.stderr:
                        errors = (errors + data)[-_MOST_ERRORS:]
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(end - time.monotonic(), 0))
            in_time = True
    finally:
        if not in_time:
            end_group(process)
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()
    texts = (part.decode("utf-8", "replace") for part in (output, errors))
    return Ended(process.returncode if in_time else 124, *texts)


def attempt_logged(
    *arguments: str,
    log: BinaryIO,
    limit: float,
    most: int,
    environment: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Ended:
    """Run a program, and write its output and errors to a file while it runs. It cannot open the file itself.

    limit      seconds; then it and its children are ended, and the status is 124
    most       the number of bytes that the file gets; a program that writes more is ended by a closed pipe
    meanwhile  called about once a second
    """
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": running.PATH, **(environment or {})},
            start_new_session=True,
        )
    except OSError as error:
        log.write(f"{arguments[0]}: {error.strerror}\n".encode())
        return Ended(127, "")
    end, ended = time.monotonic() + limit, False
    try:
        while stream := process.stdout:
            meanwhile()
            if time.monotonic() >= end:
                break
            if select.select([stream], [], [], 1)[0]:
                data = os.read(stream.fileno(), _CHUNK)
                log.write(data[:most])
                most -= len(data)
                if not data or most <= 0:
                    stream.close()
                    ended = _ends(process, end)
                    break
    finally:
        if not ended:
            end_group(process)
    return Ended(process.returncode if ended else 124, "")


def _ends(process: subprocess.Popen[bytes], end: float) -> bool:
    try:
        process.wait(max(end - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return False
    return True
