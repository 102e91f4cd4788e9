"""`sll`: show running and waiting jobs, live."""

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

from components.node.waiting import within
from components.roles.commands.sll.snapshot import Row, Snapshot, query
from components.slurm_commands.slurm import SlurmError
from components.validation.preflight.findings import plain

TURN_SECONDS = 1.0
# Between the end of one query and the next, so that a slow slurmctld gets fewer queries.
EVERY_SECONDS = 5
# Switch to the alternate screen, hide the cursor and disable line wrapping; and undo all three.
_BEGIN, _END = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_TOP, _REST_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
# Columns are cut at these widths, so that a long name does not push other columns off the screen.
COLUMNS = {
    "JOB": 12,
    "USER": 12,
    "NODES": 20,
    "GPUS": 5,
    "GPU USE": 14,
    "IDLE": 5,
    "GPU MEM": 10,
    "GPU HOURS": 10,
    "COST": 24,
    "ELAPSED": 12,
    "STATE": 10,
    "SITE": 16,
    "NAME / WAIT REASON": 500,
}
HEAD, WIDEST = tuple(COLUMNS), tuple(COLUMNS.values())
_LAST = len(HEAD) - 1
# These are left out where no job has a record of its GPUs.
_RECORDED = range(HEAD.index("GPU USE"), HEAD.index("COST") + 1)
# These are left out, the first ones first, where they leave a terminal less than so many characters for the name.
_OPTIONAL = tuple(map(HEAD.index, ("GPU MEM", "IDLE", "GPU HOURS", "COST")))
NAME_ROOM = 24
# A snapshot older than this is marked as old.
OLD_SECONDS = 20


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
            print("\n".join([*totals(seen, time.time()), "", *table(seen["jobs"], time.time(), width)]))
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


def totals(seen: Snapshot, now: float) -> list[str]:
    """Return the totals, and a warning if the snapshot is old."""
    running = [row for row in seen["jobs"] if not row["why"]]
    lines = [
        f"{len(running)} running, {len(seen['jobs']) - len(running)} waiting; "
        f"{_counted(seen['nodes'], 'node')}{_out(seen['out'])}"
        + (f"; {sum(row['gpus'] for row in running)} of {seen['gpus']} GPUs in use" if seen["gpus"] else "")
    ]
    age = now - seen["time"]
    if seen["error"] or not within(OLD_SECONDS, seen["time"], now):
        lines.append(f"this view is {_duration(age)} old: {plain(seen['error']) or 'slurmctld answers late'}")
    return lines


def table(rows: Sequence[Row], now: float, width: int = 0) -> list[str]:
    """Return a heading and a line for each job, with columns as wide as their content.

    width   of the terminal, which decides on the columns; 0 for all
    """
    whole = (HEAD, *(_cells(row, now) for row in rows))
    lines = [[text[:widest] for text, widest in zip(line, WIDEST, strict=True)] for line in whole]
    columns = [*zip(*lines, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    shown = [number for number, column in enumerate(columns) if number not in _RECORDED or any(column[1:])]
    for column in _OPTIONAL:
        before_name = sum(widths[number] + 2 for number in shown if number != _LAST)
        if width and before_name + NAME_ROOM > width and column in shown:
            shown.remove(column)
    return ["  ".join(line[number].ljust(widths[number]) for number in shown).rstrip() for line in lines]


def page(seen: Snapshot, now: float, height: int, first: int = 0, width: int = 0) -> list[str]:
    """Return a screen of lines: the summary, the table from row `first` on, and a line with keys and hidden rows."""
    top, (heading, *lines) = totals(seen, now), table(seen["jobs"], now, width)
    room = max(1, height - len(top) - 3)
    shown = lines[first : first + room]
    below = len(lines) - first - len(shown)
    more = ", ".join(f"{count} more {where}" for count, where in ((first, "above"), (below, "below")) if count > 0)
    return [*top, "", heading, *shown, f"q quits, j and k move{f'; {more}' if more else ''}"]


def rows_on(seen: Snapshot, now: float, height: int) -> int:
    """Return how many jobs fit on a page."""
    return max(1, height - len(totals(seen, now)) - 3)


def elapsed(row: Row, now: float) -> int:
    """Return the seconds since the job started; 0 while it waits."""
    return max(0, int(now - row["start"])) if row["start"] else 0


def _cells(row: Row, now: float) -> tuple[str, ...]:
    name = f"{row['name']}: {row['why']}" if row["why"] else row["name"]
    since = _duration(elapsed(row, now)) if row["start"] else ""
    nodes = row["nodes"] or str(row["count"])
    gpus = (str(row["gpus"]), row["gpu_use"], row["gpu_idle"], row["gpu_memory"], row["gpu_hours"], row["cost"])
    cells = (row["job"], row["user"], nodes, *gpus, since, row["state"], ",".join(row["sites"]), name)
    return tuple(plain(cell) for cell in cells)


def _out(names: Sequence[str]) -> str:
    shown = ", ".join(plain(name) for name in names[:5])
    return f", {len(names)} out ({shown}{', ...' if len(names) > 5 else ''})" if names else ""


def _duration(seconds: float) -> str:
    """Return Slurm's format `1-02:03:04` without leading zero parts."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
