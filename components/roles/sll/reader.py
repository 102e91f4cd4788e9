"""A reader for all viewers: it queries slurmctld every few seconds while somebody watches, and writes a file.

systemd starts it at the first connection to its socket, as an account without rights, and gives it a folder. A
connection only signals that somebody watches and carries no data; viewers read the file.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from components.roles.sll.query import query
from components.roles.sll.snapshot import EVERY_SECONDS, Snapshot
from components.roles.tailrack_command.slurm import SlurmError

FILE = "live.json"
# The reader ends after this time without a viewer.
IDLE_SECONDS = 60
# Limits the work for a client that connects all the time.
TURN_SECONDS = 0.5
MOST_IN_A_TURN = 1000
# The first file descriptor that systemd passes.
_SOCKET_FD = 3


def main(_: Sequence[str]) -> int:
    """Run until no one has watched for a minute."""
    folder = os.environ.get("RUNTIME_DIRECTORY", "")
    if os.environ.get("LISTEN_FDS") != "1" or not folder:
        print("tailrack: tailrack-live.socket starts this program when a user runs 'sll'", file=sys.stderr)
        return 1
    with socket.socket(fileno=_SOCKET_FD) as listener:
        serve(listener, Path(folder) / FILE, query)
    return 0


def serve(listener: socket.socket, file: Path, take_snapshot: Callable[[float], Snapshot]) -> None:
    """Query and write while somebody connects at least once a minute."""
    listener.setblocking(False)
    watched, due, last = time.monotonic(), 0.0, _NOTHING
    while time.monotonic() - watched < IDLE_SECONDS:
        if _has_connection(listener):
            watched = time.monotonic()
        if time.monotonic() >= due:
            last = _update(last, take_snapshot)
            write(file, last)
            due = time.monotonic() + EVERY_SECONDS
        time.sleep(TURN_SECONDS)


def write(file: Path, data: Snapshot) -> None:
    """Replace the file atomically; everybody can read it."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(data), encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(file)


_NOTHING: Snapshot = {"time": 0, "jobs": [], "nodes": 0, "out": [], "gpus": 0, "error": ""}


def _update(last: Snapshot, take_snapshot: Callable[[float], Snapshot]) -> Snapshot:
    """Return a new snapshot; if Slurm does not answer, the last one with the error."""
    try:
        return take_snapshot(time.time())
    except SlurmError as error:
        return {**last, "error": str(error)}


def _has_connection(listener: socket.socket) -> bool:
    """Return whether a client has connected since the last call. Connections are closed without reading from them."""
    connected = False
    with suppress(BlockingIOError):
        for _ in range(MOST_IN_A_TURN):
            listener.accept()[0].close()
            connected = True
    return connected
