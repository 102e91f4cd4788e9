"""Run other programs as root. `accounts.as_user` runs them as somebody else."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from components.node.failure import Failure

# Where programs are found. Tests put stubs here.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Seconds. A program that hangs must not hold a step until the step's own limit.
LIMIT_SECONDS = 600
# Seconds in which a program may end by itself when its limit is over.
_END_SECONDS = 2
# Bytes at the end of a program's errors, where the reason is.
_MOST_ERRORS = 65536
_CHUNK = 65536


# Gets a part of a program's stream, and returns whether it takes more.
Taker = Callable[[bytes], bool]


class ProgramFailed(Failure):
    """A program ended with another status than 0.

    status   its status; 124 if it took too long, 127 if it does not exist
    """

    def __init__(self, program: str, status: int, reason: str) -> None:
        super().__init__(reason)
        self.program = program
        self.status = status


class Ended(NamedTuple):
    """The end of a program: its status, its output, and its errors if they were not written to the log."""

    status: int
    output: str
    errors: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 0


def attempt(
    *arguments: str,
    stdin: str = "",
    limit: float = LIMIT_SECONDS,
    environment: Mapping[str, str] | None = None,
    quiet: bool = False,
    keep_errors: bool = False,
    folder: Path | None = None,
) -> Ended:
    """Run a program, and return how it ended. It gets no file of ours but its three streams.

    stdin        text for its stdin; secrets are passed here, never as arguments
    limit        seconds; then it and its children are killed, and the status is 124
    environment  more variables
    quiet        its errors are not written to the log
    keep_errors  its errors are returned, and not written to the log
    folder       where it runs
    """
    errors = subprocess.PIPE if keep_errors else subprocess.DEVNULL if quiet else _log()
    text = {"text": True, "encoding": "utf-8", "errors": "replace"}
    process = _start(arguments, environment, stdin, errors, cwd=folder, **text)
    if isinstance(process, Ended):
        return process
    try:
        output, said = process.communicate(stdin or None, timeout=limit)
    except subprocess.TimeoutExpired:
        end_group(process)
        return Ended(124, "", f"{arguments[0]} did not end within {limit:.0f}s")
    except BaseException:
        end_group(process)
        raise
    return Ended(process.returncode, output, said or "")


def _start(
    arguments: tuple[str, ...], environment: Mapping[str, str] | None, stdin: str, stderr: int, **more: Any
) -> subprocess.Popen[Any] | Ended:
    """Start a program in its own session, or return why that failed. `more`: of Popen."""
    stream = subprocess.PIPE if stdin else subprocess.DEVNULL
    try:
        return _open(*arguments, environment=environment, stdin=stream, stdout=subprocess.PIPE, stderr=stderr, **more)
    except FileNotFoundError:
        return Ended(127, "", f"{arguments[0]}: command not found")
    except OSError as error:
        # It is for another kind of machine, for example.
        return Ended(126, "", f"{arguments[0]}: {error.strerror}")


def _open(
    *arguments: str, environment: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL, **streams: Any
) -> subprocess.Popen[Any]:
    """Start a program in its own session. Raises OSError."""
    variables = {**os.environ, "PATH": PATH, **(environment or {})}
    return subprocess.Popen(arguments, stdin=stdin, env=variables, start_new_session=True, **streams)


def _text(output: bytes | bytearray) -> str:
    return output.decode("utf-8", "replace")


def _log() -> int:
    # Tests replace sys.stderr by an object without a descriptor.
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError):
        return subprocess.DEVNULL


def end_group(process: subprocess.Popen[Any]) -> None:
    """End a program and its children, and close its streams."""
    # First let programs remove their temporary files.
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_END_SECONDS)
    # A process that the kernel cannot end, such as one that hangs at a broken GPU, is left behind.
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(_END_SECONDS)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()


def attempt_bounded(
    *arguments: str,
    limit: float,
    stdin: str = "",
    environment: Mapping[str, str] | None = None,
    most: int = 0,
    merged: bool = True,
) -> Ended:
    """Run a program that may print any amount, such as the messages of a hostile server, and keep little of it.

    Returns how it ended, with the beginning of its output and the end of its errors.

    stdin    a short text
    limit    seconds; then it and its children are ended, and the status is 124
    most     the number of bytes of its output that are returned
    merged   its output counts as errors too
    """
    process = _start(arguments, environment, stdin, subprocess.STDOUT if merged else subprocess.PIPE)
    if isinstance(process, Ended):
        return process
    if process.stdin:
        with suppress(BrokenPipeError), process.stdin as stream:
            stream.write(stdin.encode())
    output, errors = bytearray(), bytearray()

    def take_output(data: bytes) -> bool:
        output.extend(data[: most - len(output)])
        return take_errors(data) if merged else True

    def take_errors(data: bytes) -> bool:
        errors.extend(data)
        del errors[:-_MOST_ERRORS]
        return True

    in_time = pump(process, limit, take_output, take_errors)
    return Ended(process.returncode if in_time else 124, _text(output), _text(errors))


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
    process = _start(arguments, environment, "", subprocess.STDOUT)
    if isinstance(process, Ended):
        log.write(f"{process.errors}\n".encode())
        return process
    left = most

    def take(data: bytes) -> bool:
        nonlocal left
        log.write(data[:left])
        left -= len(data)
        return left > 0

    in_time = pump(process, limit, take, meanwhile=meanwhile)
    return Ended(process.returncode if in_time else 124, "")


def pump(
    process: subprocess.Popen[bytes],
    limit: float,
    take_output: Taker,
    take_errors: Taker | None = None,
    *,
    grace: float = 0,
    meanwhile: Callable[[], None] = lambda: None,
) -> bool:
    """Read a program's streams until it ends, and return whether that was within a number of seconds; else end it.

    A taker gets each part of a stream, and an empty one at its end. If it returns False the stream is closed, which
    ends a program that writes more. A child that keeps a stream open after the program has ended is not waited for.

    grace       seconds in which its streams are read after SIGTERM
    meanwhile   called about once a second
    """
    takers = {stream: take for stream, take in ((process.stdout, take_output), (process.stderr, take_errors)) if stream}

    def read(seconds: float) -> bool:
        end = time.monotonic() + seconds
        while selector.get_map():
            meanwhile()
            ended, left = process.poll() is not None, end - time.monotonic()
            if left <= 0:
                return ended
            ready = selector.select(0 if ended else min(left, 1))
            if ended and not ready:
                return True
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                if not key.data(data) or not data:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(end - time.monotonic(), 0))
        return process.returncode is not None

    in_time = False
    with selectors.DefaultSelector() as selector:
        for stream, take in takers.items():
            selector.register(stream, selectors.EVENT_READ, take)
        try:
            in_time = read(limit)
        finally:
            if not in_time:
                # It may clean up, for example cancel its jobs, and say so.
                if grace:
                    with suppress(OSError):
                        os.killpg(process.pid, signal.SIGTERM)
                        read(grace)
                end_group(process)
            for stream in takers:
                stream.close()
    return in_time


def run(
    *arguments: str,
    stdin: str = "",
    limit: float = LIMIT_SECONDS,
    environment: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> str:
    """Run a program and return its output. Raises ProgramFailed if its status is not 0."""
    ended = attempt(*arguments, stdin=stdin, limit=limit, environment=environment, quiet=quiet)
    if not ended.ok:
        raise ProgramFailed(arguments[0], ended.status, ended.errors or _sentence(arguments, ended.status))
    return ended.output


def _sentence(arguments: tuple[str, ...], status: int) -> str:
    import shlex

    command = shlex.join(arguments)
    return f"'{command if len(command) < 100 else command[:97] + '...'}' failed with status {status}"


def succeeds(*arguments: str, stdin: str = "", limit: float = LIMIT_SECONDS) -> bool:
    """Return whether a program ends with status 0. Its errors are not written to the log."""
    return attempt(*arguments, stdin=stdin, limit=limit, quiet=True).ok


def exists(program: str) -> bool:
    """Return whether a program is on this machine."""
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in PATH.split(":"))


def begin(*arguments: str, output: int | None = None) -> subprocess.Popen[bytes]:
    """Start a program that may go on after the step. It has only one file open, and its own session.

    output   the descriptor of that file; default: the step's log
    """
    log = _log() if output is None else output
    return _open(*arguments, stdout=log, stderr=log)


def pass_on(*arguments: str) -> int:
    """Run a program with this one's three streams, and return its status."""
    return subprocess.Popen(arguments, env={**os.environ, "PATH": PATH}).wait()


def reading(*arguments: str) -> subprocess.Popen[bytes]:
    """Start a program whose output the caller reads meanwhile. Its errors are written to the log."""
    return _open(*arguments, stdout=subprocess.PIPE, stderr=_log())
