"""The geometry of a scope's history: bus bandwidth from 0 up over time, with the floors of that time."""

from __future__ import annotations

import calendar
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.report.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Tick, round_step, tick_text
from components.validation.model import format_size
from components.validation.results import Entry, bandwidth, extended

HEIGHT = 220
_DAYS_APART = 230  # distance of labels below the axis: the width of a date on a telephone and half of one at the right
_MOST_MARKS = 3  # marks of the vertical axis, without 0


@dataclass(frozen=True)
class Dot:
    """A measurement with its verdict and tooltip; without a figure it is on the axis."""

    x: float
    y: float
    verdict: str
    text: str


@dataclass(frozen=True)
class Timeline:
    """A history; `line` and `floors` are points of SVG's polylines, `description` is the text for screen readers."""

    dots: tuple[Dot, ...]
    line: str
    floors: tuple[str, ...]
    days: tuple[Tick, ...]
    bandwidths: tuple[Tick, ...]
    description: str


def history_of(result: Mapping[str, Any]) -> list[Entry]:
    """Return the history of a result in the outputs; for one of an earlier version, its last measurement."""
    return extended(result.get("history"), result)


def timeline(entries: Sequence[Entry]) -> Timeline | None:
    """Return the chart of a history; None without measurements.

    Bandwidths at different message sizes cannot be compared, so the chart shows only the last judged size.
    """
    timed = [
        (seconds, entry) for entry in of_last_size(entries) if (seconds := _seconds(entry["measured_at"])) is not None
    ]
    if not any(entry["busbw_gb_per_s"] for _, entry in timed):
        return None
    timed.sort(key=lambda each: each[0])
    most: float = max(
        figure for _, entry in timed for figure in (entry["busbw_gb_per_s"], entry["floor_gb_per_s"]) if figure
    )
    step = round_step(most)
    steps = math.ceil(most / step)
    top = step * steps
    first, last = timed[0][0], timed[-1][0]

    def x(seconds: float) -> float:
        share = (seconds - first) / (last - first) if last > first else 0.5
        return LEFT + 12 + share * (WIDTH - LEFT - RIGHT - 24)

    def y(figure: float | None) -> float:
        return HEIGHT - BOTTOM - (figure or 0.0) / top * (HEIGHT - TOP - BOTTOM)

    figures = [entry["busbw_gb_per_s"] for _, entry in timed if entry["busbw_gb_per_s"] is not None]
    newest = timed[-1][1]
    return Timeline(
        dots=tuple(
            Dot(x(seconds), y(entry["busbw_gb_per_s"]), entry["verdict"], _describe(entry)) for seconds, entry in timed
        ),
        line=_points(
            (x(seconds), y(entry["busbw_gb_per_s"])) for seconds, entry in timed if entry["busbw_gb_per_s"] is not None
        ),
        floors=tuple(_floors(timed, x, y)),
        days=tuple(_days(timed, x)),
        bandwidths=tuple(
            Tick(y(step * n), tick_text(step * n, step)) for n in range(0, steps + 1, math.ceil(steps / _MOST_MARKS))
        ),
        description=(
            f"{len(timed)} measurement{'' if len(timed) == 1 else 's'} since {timed[0][1]['measured_at'][:10]}, from "
            f"{bandwidth(min(figures))} to {bandwidth(max(figures))} GB/s; the last {_describe(newest)}."
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
    old, new = (entry["busbw_gb_per_s"] or 0.0 for entry in figures[-2:])
    return (
        f"{(new - old) / old:+.1%} since {figures[-2]['measured_at'][:16].replace('T', ' ')} UTC "
        f"({bandwidth(old)} GB/s)."
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


def _describe(entry: Entry) -> str:
    figure, floor = entry["busbw_gb_per_s"], entry["floor_gb_per_s"]
    count = f"{entry['nodes']} node{'' if entry['nodes'] == 1 else 's'}"
    text = f"{entry['measured_at'][:16].replace('T', ' ')} UTC, {count}: "
    text += "no figure" if figure is None else f"{bandwidth(figure)} GB/s"
    return f"{text}, {'no floor' if floor is None else f'floor {bandwidth(floor)}'}, {entry['verdict']}"


def _floors(timed: Sequence[tuple[float, Entry]], x: Any, y: Any) -> list[str]:
    """Return a step line for each run of measurements with a floor; a floor applies from its first measurement on."""
    runs, run = [], list[tuple[float, float]]()
    for index, (seconds, entry) in enumerate(timed):
        floor = entry["floor_gb_per_s"]
        if floor is None:
            runs.append(run)
            run = []
            continue
        until = x(timed[index + 1][0]) if index + 1 < len(timed) else WIDTH - 4
        run += [(x(seconds) if index else LEFT, y(floor)), (until, y(floor))]
    return [_points(run_) for run_ in [*runs, run] if run_]


def _days(timed: Sequence[tuple[float, Entry]], x: Any) -> list[Tick]:
    """Return dates of measurements, including the last one, with legible distances."""
    ticks: list[Tick] = []
    for seconds, entry in reversed(timed):
        if not ticks or ticks[-1].position - x(seconds) >= _DAYS_APART:
            ticks.append(Tick(x(seconds), entry["measured_at"][:10]))
    return ticks


def _points(points: Any) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _seconds(moment: str) -> float | None:
    try:
        return calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:  # an impossible date
        return None
