"""The one reader for all who watch: asks slurmctld every few seconds while somebody does, and writes what it is told.

systemd starts it when the first one connects to its socket, as an account that is nobody's and may nothing, and gives
it a folder. A connection says that somebody watches and carries nothing; what there is to see is in the file.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from components.roles.sll.look import look
from components.roles.sll.snapshot import EVERY_SECONDS, Snapshot
from components.roles.tailrack_command.slurm import SlurmError

FILE = "live.json"
# Without a watcher.
IDLE_SECONDS = 60
# Whoever connects all the time costs no more than this.
TURN_SECONDS = 0.5
MOST_IN_A_TURN = 1000
# The first file descriptor that systemd hands over.
_HANDED = 3


def main(_: object) -> int:
    """Read until nobody has watched for a minute."""
    folder = os.environ.get("RUNTIME_DIRECTORY", "")
    if os.environ.get("LISTEN_FDS") != "1" or not folder:
        print("tailrack: this is started by tailrack-live.socket, when 'sll' asks for it", file=sys.stderr)
        return 1
    with socket.socket(fileno=_HANDED) as door:
        serve(door, Path(folder) / FILE, look)
    return 0


def serve(door: socket.socket, file: Path, ask: Callable[[float], Snapshot]) -> None:
    """Look and write while somebody connects at least once a minute."""
    door.setblocking(False)
    watched, due, last = time.monotonic(), 0.0, _NOTHING
    while time.monotonic() - watched < IDLE_SECONDS:
        if _connected(door):
            watched = time.monotonic()
        if time.monotonic() >= due:
            last = _look(last, ask)
            write(file, last)
            due = time.monotonic() + EVERY_SECONDS
        time.sleep(TURN_SECONDS)


def write(file: Path, found: Snapshot) -> None:
    """Put it there as a whole, for all to read."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(found), encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(file)


_NOTHING: Snapshot = {"time": 0, "jobs": [], "nodes": 0, "out": [], "gpus": 0, "error": ""}


def _look(last: Snapshot, ask: Callable[[float], Snapshot]) -> Snapshot:
    """What is there now; where Slurm does not say, what was there last, with the error."""
    try:
        return ask(time.time())
    except SlurmError as error:
        return {**last, "error": str(error)}


def _connected(door: socket.socket) -> bool:
    """Whether anybody has connected since the last time. Nobody is kept, and nobody is listened to."""
    found = False
    with suppress(BlockingIOError):
        for _ in range(MOST_IN_A_TURN):
            door.accept()[0].close()
            found = True
    return found
