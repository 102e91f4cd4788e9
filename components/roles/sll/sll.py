"""`sll`: show running and waiting jobs, live."""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Sequence

from components.roles.sll.query import query
from components.roles.sll.snapshot import Snapshot
from components.roles.sll.table import elapsed, page, rows_on, summary, table
from components.roles.tailrack_command.slurm import SlurmError

TURN_SECONDS = 1.0
# Between the end of one query and the next, so that a slow slurmctld gets fewer queries.
EVERY_SECONDS = 5
# Switch to the alternate screen, hide the cursor and disable line wrapping; and undo all three.
_BEGIN, _END = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_TOP, _REST_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def main(argv: Sequence[str]) -> int:
    """Show the live view; without a terminal, or with --once or --json, print it once."""
    parser = argparse.ArgumentParser(
        prog="sll", description="Show running and waiting jobs, live. 'tailrack why JOBID' explains a single job."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--once", action="store_true", help="print the view once")
    given = parser.parse_args(argv)
    # A name that the terminal cannot encode must not end the program.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        seen = query(time.time())
        if given.json:
            print(as_json(seen, time.time()))
        elif given.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
            print("\n".join([*summary(seen, time.time()), "", *table(seen["jobs"], time.time(), width)]))
        else:
            live(seen)
    except SlurmError as error:
        print(f"sll: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        pass
    return 0


def as_json(seen: Snapshot, now: float) -> str:
    """Return the snapshot as JSON, with the `elapsed` seconds of each job."""
    return json.dumps({**seen, "jobs": [{**row, "elapsed": elapsed(row, now)} for row in seen["jobs"]]}, indent=2)


def live(seen: Snapshot) -> None:
    """Redraw the view until the user presses q, then restore the terminal."""
    keys = sys.stdin.fileno()
    saved = termios.tcgetattr(keys)
    first, queried = 0, time.monotonic()
    try:
        tty.setcbreak(keys)
        print(_BEGIN, end="")
        while True:
            width, height = os.get_terminal_size(sys.stdout.fileno())
            step = rows_on(seen, time.time(), height)
            first = max(0, min(first, len(seen["jobs"]) - step))
            lines = page(seen, time.time(), height, first, width)
            print(_TOP + "\n".join(line + _REST_OF_LINE for line in lines) + _BELOW, end="", flush=True)
            if select.select([keys], [], [], TURN_SECONDS)[0]:
                pressed = os.read(keys, 64)
                if not pressed or pressed in (b"q", b"Q", b"\x04"):
                    return
                first += {b"j": step, b" ": step, b"\x1b[B": 1, b"k": -step, b"\x1b[A": -1}.get(pressed, 0)
            if time.monotonic() - queried >= EVERY_SECONDS:
                seen, queried = _update(seen), time.monotonic()
    finally:
        print(_END, end="", flush=True)
        termios.tcsetattr(keys, termios.TCSADRAIN, saved)


def _update(last: Snapshot) -> Snapshot:
    """Return a new snapshot; if Slurm does not answer, the last one with the error."""
    try:
        return query(time.time())
    except SlurmError as error:
        return {**last, "error": str(error)}
