"""Run a program as another account, the only way for root to do so.

A process with the same uid can stop the program, trace it, take its descriptors, let it run forever, and leave children
that keep its descriptors. So the program has only three open streams, none of which leads to a file of root's; it has
its own session, so no terminal, and none of root's environment; and root reads its output up to a number of bytes and
seconds.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO, Protocol

from components.node import files
from components.node import run as running
from components.node.run import Ended

# Seconds in which a program may end by itself when its limit is over.
_END_SECONDS = 5


class Sink(Protocol):
    """A file that gets a program's output. `tell` returns the number of bytes that count against `most`."""

    def write(self, data: bytes, /) -> int: ...

    def tell(self) -> int: ...


def as_user(
    name: str | tuple[int, int],
    *arguments: str,
    limit: float,
    most: int = 65536,
    stdin: str | BinaryIO = "",
    environment: Mapping[str, str] | None = None,
    into: Sink | None = None,
) -> Ended:
    """Run a program as an account. Its errors go to the log at once, up to `most` bytes.

    name    the account, or the uid and gid of one that the machine may not have yet
    limit   seconds; then it is ended, and the status is 124
    most    the greatest number of bytes of output
    into    a file of root's that gets the output, for more than fits into memory
    stdin   text, or a file that the account may read
    """
    import tempfile

    more = ["env", *(f"{key}={value}" for key, value in environment.items())] if environment else []
    if isinstance(name, str):
        account = ["runuser", "-u", name, "--"]
    else:
        account = ["setpriv", f"--reuid={name[0]}", f"--regid={name[1]}", "--clear-groups", "--"]
    user = name if isinstance(name, str) else str(name[0])
    # The input exists before the program starts, in a file without a name: nothing waits for a reader.
    with tempfile.TemporaryFile() as file:
        if isinstance(stdin, str):
            file.write(stdin.encode())
            file.seek(0)
        process = subprocess.Popen(
            [*account, *more, *arguments],
            stdin=(file if isinstance(stdin, str) else stdin) if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": running.PATH, "HOME": "/", "USER": user, "LOGNAME": user, "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
    reader = _Reader(process, most, into)
    in_time = False
    try:
        in_time = reader.read(limit)
    finally:
        if not in_time:
            _end(process, reader)
        reader.close()
    return Ended(process.returncode if in_time else 124, *reader.texts)


def main(arguments: Sequence[str]) -> int:
    """Run a program as an account, for scripts: its name, seconds, bytes, words. Stdin is empty."""
    name, limit, most, *words = arguments
    # Ended by its script's limit, it ends the program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A dump of a database goes to the file that stdout is.
    into = sys.stdout.buffer if int(most) > 10**8 else None
    ended = as_user(name, *words, limit=float(limit), most=int(most), into=into)
    sys.stdout.write(ended.output)
    return ended.status


def owns_folder(name: str, path: str, limit: float) -> bool:
    """Return whether a path is an account's own folder and no link. Root may have no rights there."""
    place = files.on_disk(path)
    return as_user(name, "test", "-d", place, "-a", "-O", place, "-a", "!", "-L", place, limit=limit).ok


def _end(process: subprocess.Popen[bytes], reader: _Reader) -> None:
    """End a program and its children."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
        # It may clean up, for example cancel its jobs, and say so.
        reader.read(_END_SECONDS)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    # A process that the kernel cannot end is left behind.
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_SECONDS)


class _Reader:
    """The two streams of a program. Reads their first bytes, and writes its errors to the log."""

    def __init__(self, process: subprocess.Popen[bytes], most: int, into: Sink | None) -> None:
        self._process, self._most, self._into = process, most, into
        self._parts = (bytearray(), bytearray())
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._streams = [stream for stream in (process.stdout, process.stderr) if stream]
        self._selector = selectors.DefaultSelector()
        for number, stream in enumerate(self._streams):
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, number)

    @property
    def texts(self) -> list[str]:
        return [part.decode("utf-8", "replace") for part in self._parts]

    def read(self, limit: float) -> bool:
        """Read until the program ends. Return whether that happened within a number of seconds.

        A child that keeps a stream open after the program has ended is not waited for.
        """
        end = time.monotonic() + limit
        while self._selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                return False
            ended = self._process.poll() is not None
            ready = self._selector.select(0 if ended else min(left, 1))
            if not ready and ended:
                return True
            for key, _ in ready:
                self._take(key.data)
        try:
            self._process.wait(max(end - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def _take(self, number: int) -> None:
        stream, part = self._streams[number], self._parts[number]
        data = os.read(stream.fileno(), 65536)
        if data and self._into and number == 0:
            self._into.write(data[: self._most - self._into.tell()])
            return
        taken = data[: self._most - len(part)]
        part += taken
        if number == 1:
            sys.stderr.write(self._decoder.decode(taken, final=not data))
            sys.stderr.flush()
        if not data or len(part) == self._most:
            # A closed pipe ends a program that writes more.
            self._selector.unregister(stream)
            stream.close()

    def close(self) -> None:
        self._selector.close()
        for stream in self._streams:
            stream.close()
