"""Where `sll` has it from: the reader's file, while the reader knows that somebody watches."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

from components.roles.sll.look import look
from components.roles.sll.snapshot import EVERY_SECONDS, Snapshot, read_snapshot
from components.roles.tailrack_command.slurm import SlurmError

SOCKET = Path("/run/tailrack-live.socket")
FILE = Path("/run/tailrack-live/live.json")
# The reader ends a minute after the last one.
AGAIN_SECONDS = 15
# For its first look, with a slurmctld that is slow; it gives one up after 30 for jobs and 30 for nodes.
FIRST_SECONDS = 70
NAP_SECONDS = 0.2


class Watch:
    """Someone who watches."""

    def __init__(self) -> None:
        self._said = self._looked = float("-inf")
        self._kept: Snapshot | None = None
        self._stamp = 0

    def seen(self) -> Snapshot | None:
        """What there is now; None where the reader has not looked yet. Raises SlurmError without a reader."""
        if not SOCKET.exists():
            return self._own()
        self._tell()
        try:
            with FILE.open(encoding="utf-8") as file:
                # Read once, however often it is drawn.
                if (stamp := os.fstat(file.fileno()).st_mtime_ns) != self._stamp:
                    self._kept, self._stamp = read_snapshot(file.read()), stamp
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise SlurmError("what the reader writes cannot be read; see 'journalctl -u tailrack-live'") from None
        return self._kept

    def _own(self) -> Snapshot:
        """Where jobs are nobody else's business (PrivateData) each asks for what it may see, as often as the reader."""
        if self._kept is None or time.monotonic() - self._looked >= EVERY_SECONDS:
            self._kept = look(time.time())
            self._looked = time.monotonic()
        return self._kept

    def first(self) -> Snapshot:
        """Wait until there is something. Raises SlurmError where there is nothing to wait for."""
        end = time.monotonic() + FIRST_SECONDS
        while (seen := self.seen()) is None or not (seen["time"] or seen["error"]):
            if time.monotonic() > end:
                raise SlurmError(f"nothing to see after {FIRST_SECONDS} s; see 'journalctl -u tailrack-live'")
            time.sleep(NAP_SECONDS)
        if not seen["time"]:
            raise SlurmError(seen["error"])
        return seen

    def _tell(self) -> None:
        """That somebody watches, four times a minute. Where the door is full, others are telling it."""
        if time.monotonic() - self._said < AGAIN_SECONDS:
            return
        self._said = time.monotonic()
        with socket.socket(socket.AF_UNIX) as door:
            door.setblocking(False)
            with suppress(BlockingIOError):
                try:
                    door.connect(str(SOCKET))
                except (FileNotFoundError, ConnectionRefusedError):
                    raise SlurmError(
                        "the reader does not listen; see 'systemctl status tailrack-live.socket'"
                    ) from None
