"""Format the live view as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from components.node.waiting import within
from components.roles.sll.snapshot import Row, Snapshot
from components.validation.preflight.findings import plain

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


def summary(seen: Snapshot, now: float) -> list[str]:
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
    lines = [[text[:widest] for text, widest in zip(line, WIDEST, strict=True)] for line in _lines(rows, now)]
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
    top, (heading, *lines) = summary(seen, now), table(seen["jobs"], now, width)
    room = max(1, height - len(top) - 3)
    shown = lines[first : first + room]
    below = len(lines) - first - len(shown)
    more = ", ".join(f"{count} more {where}" for count, where in ((first, "above"), (below, "below")) if count > 0)
    return [*top, "", heading, *shown, f"q quits, j and k move{f'; {more}' if more else ''}"]


def rows_on(seen: Snapshot, now: float, height: int) -> int:
    """Return how many jobs fit on a page."""
    return max(1, height - len(summary(seen, now)) - 3)


def elapsed(row: Row, now: float) -> int:
    """Return the seconds since the job started; 0 while it waits."""
    return max(0, int(now - row["start"])) if row["start"] else 0


def _lines(rows: Sequence[Row], now: float) -> list[tuple[str, ...]]:
    return [HEAD, *(_cells(row, now) for row in rows)]


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
