"""The geometry of a chart: bus bandwidth from 0 up over message size on a logarithmic axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

from components.validation.model import format_size
from components.validation.results import bandwidth
from components.validation.verdict import Result

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 16, 40
_ASIDE = 28  # distance of the first and the last size from the frame: half of their labels' width
_MOST_SIZES = 6  # labels below the axis; more would overlap on a telephone
_FLOOR_REACH = 34  # length of the floor's line on either side of its size


@dataclass(frozen=True)
class Tick:
    """A mark of an axis with its text."""

    position: float
    text: str


@dataclass(frozen=True)
class Point:
    """One measurement with its tooltip."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class FloorMark:
    """The floor: a line at the judged size."""

    left: float
    right: float
    y: float
    text: str


@dataclass(frozen=True)
class Chart:
    """A chart; `description` is its text for screen readers."""

    out_of_place: tuple[Point, ...]
    in_place: tuple[Point, ...]
    floor: FloorMark | None
    sizes: tuple[Tick, ...]
    bandwidths: tuple[Tick, ...]
    description: str

    @staticmethod
    def path(points: tuple[Point, ...]) -> str:
        """Return the points as SVG's polyline needs them."""
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in points)


def chart(result: Result) -> Chart | None:
    """Return the chart of a measurement; None without rows."""
    rows = sorted(result["rows"], key=lambda row: row["bytes"])
    if not rows:
        return None
    floor, gate = result["floor_gb_per_s"], result["gate_bytes"]
    most: float = max(max(row["out_of_place"]["busbw_gb_per_s"], row["in_place"]["busbw_gb_per_s"]) for row in rows)
    step = round_step(max(most, floor or 0.0))
    top = step * math.ceil(max(most, floor or 0.0) / step)
    least, largest = math.log2(rows[0]["bytes"]), math.log2(rows[-1]["bytes"])

    def x(size: int) -> float:
        share = (math.log2(size) - least) / (largest - least) if largest > least else 0.5
        return LEFT + _ASIDE + share * (WIDTH - LEFT - RIGHT - 2 * _ASIDE)

    def y(figure: float) -> float:
        return HEIGHT - BOTTOM - figure / top * (HEIGHT - TOP - BOTTOM)

    def point(size: int, half: dict[str, float], kind: str) -> Point:
        figure = half["busbw_gb_per_s"]
        return Point(x(size), y(figure), f"{format_size(size)}, {kind}: {bandwidth(figure)} GB/s")

    mark = None
    if floor is not None and rows[0]["bytes"] <= gate <= rows[-1]["bytes"]:
        text = f"floor {bandwidth(floor)} GB/s at {format_size(gate)}"
        mark = FloorMark(max(LEFT, x(gate) - _FLOOR_REACH), min(WIDTH - 4, x(gate) + _FLOOR_REACH), y(floor), text)
    every = math.ceil(len(rows) / _MOST_SIZES)
    first, last = rows[0], rows[-1]
    return Chart(
        out_of_place=tuple(point(row["bytes"], row["out_of_place"], "out of place") for row in rows),
        in_place=tuple(point(row["bytes"], row["in_place"], "in place") for row in rows),
        floor=mark,
        # From the largest down, because that is usually the judged size.
        sizes=tuple(Tick(x(row["bytes"]), format_size(row["bytes"])) for row in rows[::-1][::every]),
        bandwidths=tuple(Tick(y(step * n), tick_text(step * n, step)) for n in range(round(top / step) + 1)),
        description=(
            f"Bus bandwidth out of place goes from {bandwidth(first['out_of_place']['busbw_gb_per_s'])} GB/s at "
            f"{format_size(first['bytes'])} to {bandwidth(last['out_of_place']['busbw_gb_per_s'])} GB/s at "
            f"{format_size(last['bytes'])}; {mark.text if mark else 'no floor'}."
        ),
    )


def round_step(most: float) -> float:
    """Return 1, 2 or 5 times a power of ten, so that three to six steps reach `most`."""
    if not (math.isfinite(most) and most > 0):
        return 1.0
    power = 10.0 ** math.floor(math.log10(most / 3))
    return next(power * factor for factor in (1, 2, 5, 10) if most / (power * factor) <= 6)


def tick_text(figure: float, step: float) -> str:
    """Return the text of a mark on an axis whose marks are `step` apart."""
    return f"{figure:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
