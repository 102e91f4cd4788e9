"""The geometry of charts: bus bandwidth from 0 up over message size, and over time with the floors then."""

import calendar
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from components.validation.model import format_size
from components.validation.results import Entry, bandwidth
from components.validation.verdict import Result

WIDTH, HEIGHT, HISTORY_HEIGHT = 640, 300, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 16, 40
_ASIDE = 28  # distance of the first and the last size from the frame: half of their labels' width
_MOST_SIZES = 6  # labels below the axis; more would overlap on a telephone
_FLOOR_REACH = 34  # length of the floor's line on either side of its size
_DAYS_APART = 230  # distance of labels below the axis: the width of a date on a telephone and half of one at the right
# A chart, a point or a mark, as the page's template reads it.
Drawn = dict[str, Any]
Place = Callable[[float], float]


def chart(result: Result) -> Drawn | None:
    """Return the chart of a measurement; None without rows. `description` is its text for screen readers."""
    rows = sorted(result["rows"], key=lambda row: row["bytes"])
    if not rows:
        return None
    floor, gate, first, last = result["floor_gb_per_s"], result["gate_bytes"], rows[0], rows[-1]
    figures = [row[half]["busbw_gb_per_s"] for row in rows for half in ("out_of_place", "in_place")]
    y, bandwidths = _axis(max(*figures, floor or 0.0), HEIGHT, 6)
    across = _across(math.log2(first["bytes"]), math.log2(last["bytes"]), _ASIDE)

    def x(size: int) -> float:
        return across(math.log2(size))

    def points(half: str) -> list[Drawn]:
        values = [(row["bytes"], row[half]["busbw_gb_per_s"]) for row in rows]
        kind = half.replace("_", " ")
        return [
            {"x": x(size), "y": y(figure), "text": f"{format_size(size)}, {kind}: {bandwidth(figure)} GB/s"}
            for size, figure in values
        ]

    mark = None
    if floor is not None and first["bytes"] <= gate <= last["bytes"]:
        left, right = max(LEFT, x(gate) - _FLOOR_REACH), min(WIDTH - 4, x(gate) + _FLOOR_REACH)
        text = f"floor {bandwidth(floor)} GB/s at {format_size(gate)}"
        mark = {"left": left, "right": right, "y": y(floor), "text": text}
    every = math.ceil(len(rows) / _MOST_SIZES)
    return {
        "out_of_place": points("out_of_place"),
        "in_place": points("in_place"),
        "floor": mark,
        # From the largest down, because that is usually the judged size.
        "sizes": [{"position": x(row["bytes"]), "text": format_size(row["bytes"])} for row in rows[::-1][::every]],
        "bandwidths": bandwidths,
        "description": (
            f"Bus bandwidth out of place goes from {bandwidth(first['out_of_place']['busbw_gb_per_s'])} GB/s at "
            f"{format_size(first['bytes'])} to {bandwidth(last['out_of_place']['busbw_gb_per_s'])} GB/s at "
            f"{format_size(last['bytes'])}; {mark['text'] if mark else 'no floor'}."
        ),
    }


def _across(first: float, last: float, aside: float) -> Place:
    """Return the place of a value between two others, which are `aside` from the frame."""

    def place(value: float) -> float:
        share = (value - first) / (last - first) if last > first else 0.5
        return LEFT + aside + share * (WIDTH - LEFT - RIGHT - 2 * aside)

    return place


def _axis(most: float, height: int, most_marks: int) -> tuple[Place, list[Drawn]]:
    """Return the place of a bandwidth, and the marks of the axis: without 0, `most_marks` at most."""
    step = round_step(most)
    steps = math.ceil(most / step)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))

    def place(figure: float) -> float:
        return height - BOTTOM - figure / (step * steps) * (height - TOP - BOTTOM)

    marks = [step * number for number in range(0, steps + 1, math.ceil(steps / most_marks))]
    return place, [{"position": place(mark), "text": f"{mark:.{digits}f}"} for mark in marks]


def round_step(most: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that three to six steps reach `most`."""
    if not (math.isfinite(most) and most > 0):
        return 1.0
    power = 10.0 ** math.floor(math.log10(most / 3))
    return next(power * factor for factor in (1, 2, 5, 10) if most / (power * factor) <= 6)


def timeline(entries: Sequence[Entry]) -> Drawn | None:
    """Return the chart of a history; None without measurements. A measurement without a figure is on the axis.

    Bandwidths at different message sizes cannot be compared, so the chart shows only the last judged size.
    """
    timed = [
        (seconds, entry) for entry in of_last_size(entries) if (seconds := _seconds(entry["measured_at"])) is not None
    ]
    timed.sort(key=lambda each: each[0])
    measured = [(seconds, figure) for seconds, entry in timed if (figure := entry["busbw_gb_per_s"]) is not None]
    figures = [figure for _, figure in measured]
    if not any(figures):
        return None
    y, bandwidths = _axis(max(*figures, *(entry["floor_gb_per_s"] or 0.0 for _, entry in timed)), HISTORY_HEIGHT, 3)
    x = _across(timed[0][0], timed[-1][0], 12)
    return {
        "dots": [
            {
                "x": x(seconds),
                "y": y(entry["busbw_gb_per_s"] or 0.0),
                "verdict": entry["verdict"],
                "text": _describe(entry),
            }
            for seconds, entry in timed
        ],
        "line": _points((x(seconds), y(figure)) for seconds, figure in measured),
        "floors": _floors(timed, x, y),
        "days": _days(timed, x),
        "bandwidths": bandwidths,
        "description": (
            f"{len(timed)} measurement{'' if len(timed) == 1 else 's'} since {timed[0][1]['measured_at'][:10]}, from "
            f"{bandwidth(min(figures))} to {bandwidth(max(figures))} GB/s; the last {_describe(timed[-1][1])}."
        ),
    }


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


def _floors(timed: Sequence[tuple[float, Entry]], x: Place, y: Place) -> list[str]:
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


def _days(timed: Sequence[tuple[float, Entry]], x: Place) -> list[Drawn]:
    """Return dates of measurements, including the last one, with legible distances."""
    ticks: list[Drawn] = []
    for seconds, entry in reversed(timed):
        if not ticks or ticks[-1]["position"] - x(seconds) >= _DAYS_APART:
            ticks.append({"position": x(seconds), "text": entry["measured_at"][:10]})
    return ticks


def _points(points: Any) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _seconds(moment: str) -> float | None:
    try:
        return calendar.timegm(time.strptime(moment, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:  # an impossible date
        return None
