"""Where the history of a scope lies: bus bandwidth over time, from 0 up, with the floor that was in force."""

from __future__ import annotations

import calendar
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Tick, round_step, tick_text
from components.validation.history import Entry, extended
from components.validation.sizes import format_size
from components.validation.table import bandwidth

HEIGHT = 220
_DAYS_APART = 230  # below the axis: as wide as a day is on a telephone, and half of one at the right end
_MOST_MARKS = 3  # of the axis beside it, without the 0


@dataclass(frozen=True)
class Dot:
    """A measurement: where, its verdict, and what is told of it. One without a figure lies on the axis."""

    x: float
    y: float
    verdict: str
    text: str


@dataclass(frozen=True)
class Timeline:
    """All of a history; `line` and `floors` are what SVG's polylines want, and `words` tells it to who does not see."""

    dots: tuple[Dot, ...]
    line: str
    floors: tuple[str, ...]
    days: tuple[Tick, ...]
    bandwidths: tuple[Tick, ...]
    words: str


def history_of(result: Mapping[str, Any]) -> list[Entry]:
    """Return the history of a result in the outputs; of one of an earlier version, what it measured last."""
    return extended(result.get("history"), result)


def timeline(entries: Sequence[Entry]) -> Timeline | None:
    """Return the chart of a history; None where nothing was measured.

    Bandwidths at different message sizes cannot be compared, so the chart has only the size that was judged last.
    """
    timed = [(at, entry) for entry in of_last_size(entries) if (at := _seconds(entry["measured_at"])) is not None]
    if not any(entry["busbw_gb_per_s"] for _, entry in timed):
        return None
    timed.sort(key=lambda each: each[0])
    most = max(figure for _, entry in timed for figure in (entry["busbw_gb_per_s"], entry["floor_gb_per_s"]) if figure)
    step = round_step(most)
    steps = math.ceil(most / step)
    top = step * steps
    first, last = timed[0][0], timed[-1][0]

    def x(at: float) -> float:
        share = (at - first) / (last - first) if last > first else 0.5
        return LEFT + 12 + share * (WIDTH - LEFT - RIGHT - 24)

    def y(figure: float | None) -> float:
        return HEIGHT - BOTTOM - (figure or 0.0) / top * (HEIGHT - TOP - BOTTOM)

    figures = [entry["busbw_gb_per_s"] for _, entry in timed if entry["busbw_gb_per_s"] is not None]
    newest = timed[-1][1]
    return Timeline(
        dots=tuple(Dot(x(at), y(entry["busbw_gb_per_s"]), entry["verdict"], _told(entry)) for at, entry in timed),
        line=_points((x(at), y(entry["busbw_gb_per_s"])) for at, entry in timed if entry["busbw_gb_per_s"] is not None),
        floors=tuple(_floors(timed, x, y)),
        days=tuple(_days(timed, x)),
        bandwidths=tuple(
            Tick(y(step * n), tick_text(step * n, step)) for n in range(0, steps + 1, math.ceil(steps / _MOST_MARKS))
        ),
        words=(
            f"{len(timed)} measurement{'' if len(timed) == 1 else 's'} since {timed[0][1]['measured_at'][:10]}, from "
            f"{bandwidth(min(figures))} to {bandwidth(max(figures))} GB/s; the last {_told(newest)}."
        ),
    )


def of_last_size(entries: Sequence[Entry]) -> list[Entry]:
    """Return the measurements at the message size of the newest one; those of unknown size belong to every size."""
    size = entries[-1].get("gate_bytes") if entries else None
    return [entry for entry in entries if size is None or entry.get("gate_bytes", size) == size]


def change(entries: Sequence[Entry]) -> str:
    """Return how the newest figure differs from the one before it, as a sentence; empty if one is missing."""
    figures = [entry for entry in of_last_size(entries) if entry["busbw_gb_per_s"]]
    if len(figures) < 2 or figures[-1]["measured_at"] != entries[-1]["measured_at"]:
        return ""
    before, now = (entry["busbw_gb_per_s"] or 0.0 for entry in figures[-2:])
    return (
        f"{(now - before) / before:+.1%} since {figures[-2]['measured_at'][:16].replace('T', ' ')} UTC "
        f"({bandwidth(before)} GB/s)."
    )


def measurements(entries: Sequence[Entry]) -> list[list[str]]:
    """Return every measurement as a row of text, the newest first: time, nodes, size, bandwidth, floor, verdict."""
    rows = []
    for entry in reversed(entries):
        size, figure, floor = entry.get("gate_bytes"), entry["busbw_gb_per_s"], entry["floor_gb_per_s"]
        rows.append(
            [
                f"{entry['measured_at'][:16].replace('T', ' ')} UTC",
                str(entry["nodes"]),
                format_size(size) if size else "",
                "none" if figure is None else bandwidth(figure),
                "none" if floor is None else bandwidth(floor),
                entry["verdict"],
            ]
        )
    return rows


def _told(entry: Entry) -> str:
    figure, floor = entry["busbw_gb_per_s"], entry["floor_gb_per_s"]
    count = f"{entry['nodes']} node{'' if entry['nodes'] == 1 else 's'}"
    words = f"{entry['measured_at'][:16].replace('T', ' ')} UTC, {count}: "
    words += "no figure" if figure is None else f"{bandwidth(figure)} GB/s"
    return f"{words}, {'no floor' if floor is None else f'floor {bandwidth(floor)}'}, {entry['verdict']}"


def _floors(timed: Sequence[tuple[float, Entry]], x: Any, y: Any) -> list[str]:
    """Of each run of measurements with a floor a line of steps: a floor holds from its first measurement on."""
    found, run = [], list[tuple[float, float]]()
    for index, (at, entry) in enumerate(timed):
        floor = entry["floor_gb_per_s"]
        if floor is None:
            found.append(run)
            run = []
            continue
        until = x(timed[index + 1][0]) if index + 1 < len(timed) else WIDTH - 4
        run += [(x(at) if index else LEFT, y(floor)), (until, y(floor))]
    return [_points(each) for each in [*found, run] if each]


def _days(timed: Sequence[tuple[float, Entry]], x: Any) -> list[Tick]:
    """Days of measurements, the last one among them, so far apart that they can be read."""
    found: list[Tick] = []
    for at, entry in reversed(timed):
        if not found or found[-1].at - x(at) >= _DAYS_APART:
            found.append(Tick(x(at), entry["measured_at"][:10]))
    return found


def _points(each: Any) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in each)


def _seconds(moment: str) -> float | None:
    try:
        return calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:  # a day that no calendar has
        return None
