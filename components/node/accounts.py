"""Run a program as another account, the only way for root to do so.

A process with the same uid can stop the program, trace it, take its descriptors, let it run forever, and leave children
that keep its descriptors. So the program has only three open streams, none of which leads to a file of root's; it has
its own session, so no terminal, and none of root's environment; and root reads its output up to a number of bytes and
seconds.
"""

import codecs
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
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
    output, errors = bytearray(), bytearray()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take_output(data: bytes) -> bool:
        if into:
            into.write(data[: most - into.tell()])
            return True
        output.extend(data[: most - len(output)])
        return len(output) < most

    def take_errors(data: bytes) -> bool:
        taken = data[: most - len(errors)]
        errors.extend(taken)
        sys.stderr.write(decoder.decode(taken, final=not data))
        sys.stderr.flush()
        return len(errors) < most

    in_time = running.pump(process, limit, take_output, take_errors, grace=_END_SECONDS)
    texts = (bytes(part).decode("utf-8", "replace") for part in (output, errors))
    return Ended(process.returncode if in_time else 124, *texts)


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
