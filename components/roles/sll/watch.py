"""Get snapshots for `sll`: tell the reader that somebody watches, and read its file."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from components.roles.sll.query import query
from components.roles.sll.snapshot import EVERY_SECONDS, Snapshot, read_snapshot
from components.roles.tailrack_command.slurm import SlurmError

SOCKET = Path("/run/tailrack-live.socket")
FILE = Path("/run/tailrack-live/live.json")
# The reader ends a minute after the last signal.
SIGNAL_SECONDS = 15
# The reader's first query of a slow slurmctld: at most 30 s for jobs and 30 s for nodes.
FIRST_SECONDS = 70
NAP_SECONDS = 0.2


class Watch:
    """A viewer's source of snapshots."""

    def __init__(self) -> None:
        self._signalled = self._queried = float("-inf")
        self._last: Snapshot | None = None
        self._stamp = 0

    def latest(self) -> Snapshot | None:
        """Return the latest snapshot; None if the reader has not written one yet. Raise SlurmError without a reader."""
        if not SOCKET.exists():
            return self._query()
        self._signal()
        try:
            with FILE.open(encoding="utf-8") as file:
                # Each version of the file is parsed once.
                if (stamp := os.fstat(file.fileno()).st_mtime_ns) != self._stamp:
                    self._last, self._stamp = read_snapshot(file.read()), stamp
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise SlurmError("cannot read the reader's file; see 'journalctl -u tailrack-live'") from None
        return self._last

    def _query(self) -> Snapshot:
        """Query slurmctld as this user, as often as the reader does: with PrivateData each user sees different jobs."""
        if self._last is None or time.monotonic() - self._queried >= EVERY_SECONDS:
            self._last = query(time.time())
            self._queried = time.monotonic()
        return self._last

    def first(self) -> Snapshot:
        """Wait for the first snapshot. Raise SlurmError if none arrives."""
        end = time.monotonic() + FIRST_SECONDS
        while (seen := self.latest()) is None or not (seen["time"] or seen["error"]):
            if time.monotonic() > end:
                raise SlurmError(f"no data after {FIRST_SECONDS} s; see 'journalctl -u tailrack-live'")
            time.sleep(NAP_SECONDS)
        if not seen["time"]:
            raise SlurmError(seen["error"])
        return seen

    def _signal(self) -> None:
        """Connect to the reader four times a minute. If the socket's queue is full, other viewers signal it."""
        if time.monotonic() - self._signalled < SIGNAL_SECONDS:
            return
        self._signalled = time.monotonic()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)
            with suppress(BlockingIOError):
                try:
                    connection.connect(str(SOCKET))
                except (FileNotFoundError, ConnectionRefusedError):
                    raise SlurmError(
                        "cannot connect to the reader; see 'systemctl status tailrack-live.socket'"
                    ) from None
