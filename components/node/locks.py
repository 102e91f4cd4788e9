"""Locks between processes of root. Only root can open the files: a user who can open a file can lock it."""

import fcntl
import os
import time

from components.node import files
from components.node.failure import Failure
from components.node.waiting import pauses

# Locks, such as /run/tailrack-private/tailrack.lock, and answers of running steps.
PRIVATE = "/run/tailrack-private"
# Seconds to wait for another step on this host: a step that was cut off may still run.
WAIT_SECONDS = 600
PROGRAM_SECONDS = 60


class Lock:
    """An exclusive lock that no child process inherits. It ends with the process, a `with` or `release`."""

    def __init__(self, name: str, *, shared: bool = False, seconds: float = WAIT_SECONDS) -> None:
        """Wait for the lock. Raises Failure after a number of seconds."""
        files.make_folder(PRIVATE, 0o700)
        self.path = f"{PRIVATE}/{name}.lock"
        self._descriptor = files.open_to_lock(self.path)
        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        end = time.monotonic() + seconds
        for pause in pauses():
            try:
                fcntl.flock(self._descriptor, mode)
                return
            except BlockingIOError:
                if time.monotonic() >= end:
                    os.close(self._descriptor)
                    raise Failure(
                        f"another step has held {self.path} for {seconds:.0f}s",
                        f"run 'fuser -v {self.path}' to find it",
                    ) from None
            time.sleep(pause)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others have the lock."""
        os.close(self._descriptor)


def lock_of_program(name: str, then: str = "") -> Lock:
    """Return a lock between the instances of a program. Raises Failure; `then`: the end of its text."""
    try:
        return Lock(name, seconds=PROGRAM_SECONDS)
    except Failure:
        reason = f"another instance has held the lock for {PROGRAM_SECONDS} s; see 'fuser -v {PRIVATE}/{name}.lock'"
        raise Failure(f"{reason}{then}") from None
