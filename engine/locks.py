"""One process at a time: the lock that the engine, the command line and the lab hold on what they work on."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, busy: Exception | None = None) -> Iterator[None]:
    """Hold an exclusive lock on the file `path` (made, mode 0600, with its folders).

    Where another process holds it, raises `busy`, or waits if there is none. The kernel frees the lock when its owner
    dies, even by SIGKILL.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError as error:
            raise busy or error from None
        yield
