"""The live view as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from components.roles.sll.snapshot import Row, Snapshot
from components.validation.preflight.findings import plain

HEAD = ("JOB", "USER", "NODES", "GPUS", "ELAPSED", "STATE", "SITE", "NAME / WHY IT WAITS")
# Columns are cut at these, so that nobody's long name pushes the others' away.
WIDEST = (12, 12, 20, 5, 12, 10, 16, 500)
# After this the reader is late.
OLD_SECONDS = 20


def summary(seen: Snapshot, now: float) -> list[str]:
    """What runs and waits in all; and a line where what is shown is old."""
    running = [row for row in seen["jobs"] if not row["why"]]
    lines = [
        f"{len(running)} running, {len(seen['jobs']) - len(running)} waiting; "
        f"{_counted(seen['nodes'], 'node')}{_out(seen['out'])}"
        + (f"; {sum(row['gpus'] for row in running)} of {seen['gpus']} GPUs in use" if seen["gpus"] else "")
    ]
    late = now - seen["time"]
    if seen["error"] or late > OLD_SECONDS:
        lines.append(f"not new, but of {_length(late)} ago: {plain(seen['error']) or 'the reader is late'}")
    return lines


def table(rows: Sequence[Row], now: float) -> list[str]:
    """A line a job below one of headings, as wide as what is in them."""
    cells = [HEAD, *(_cells(row, now) for row in rows)]
    cut = [[text[:most] for text, most in zip(line, WIDEST, strict=True)] for line in cells]
    wide = [max(len(line[column]) for line in cut) for column in range(len(HEAD))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, wide, strict=True)).rstrip() for line in cut]


def page(seen: Snapshot, now: float, height: int, first: int = 0) -> list[str]:
    """What fits on a screen: summary, table from row `first` on, and a last line of what is not shown."""
    top, (heading, *lines) = summary(seen, now), table(seen["jobs"], now)
    room = max(1, height - len(top) - 3)
    shown = lines[first : first + room]
    below = len(lines) - first - len(shown)
    more = ", ".join(f"{count} more {where}" for count, where in ((first, "above"), (below, "below")) if count > 0)
    return [*top, "", heading, *shown, f"q quits, j and k move{f'; {more}' if more else ''}"]


def rows_on(seen: Snapshot, now: float, height: int) -> int:
    """How many jobs a page shows."""
    return max(1, height - len(summary(seen, now)) - 3)


def elapsed(row: Row, now: float) -> int:
    """Seconds since it began; 0 while it waits."""
    return max(0, int(now - row["start"])) if row["start"] else 0


def _cells(row: Row, now: float) -> tuple[str, ...]:
    name = f"{row['name']}: {row['why']}" if row["why"] else row["name"]
    since = _length(elapsed(row, now)) if row["start"] else ""
    nodes = row["nodes"] or str(row["count"])
    # What is in the file has been cleaned by who wrote it; a terminal gets nothing that has not been here too.
    cells = (row["job"], row["user"], nodes, str(row["gpus"]), since, row["state"], ",".join(row["sites"]), name)
    return tuple(plain(cell) for cell in cells)


def _out(names: Sequence[str]) -> str:
    shown = ", ".join(plain(name) for name in names[:5])
    return f", {len(names)} out ({shown}{', ...' if len(names) > 5 else ''})" if names else ""


def _length(seconds: float) -> str:
    """`1-02:03:04`, as Slurm writes it, without the parts in front that are 0."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02d}:{minutes:02d}:{rest:02d}"
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
