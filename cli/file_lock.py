"""A lock for one process at a time, used by the engine, the command line and the lab."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, busy: Exception | None = None) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`, and create it (mode 0600) and its folders if they are missing.

    If another process holds the lock, raise `busy`, or wait if `busy` is None. The kernel frees the lock when its owner
    ends, also by SIGKILL.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError as error:
            raise busy or error from None
        yield
