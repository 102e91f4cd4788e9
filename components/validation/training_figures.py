"""Parse the output of examples/training/benchmark.py, which is untrusted output of a user's job."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from components.validation.untrusted import read

PREFIX = "tailrack-training"
MISSING = f"{PREFIX}-missing"
_LATE_SHARE = 0.95
_Text = Annotated[str, r"[ -~]{0,99}"]


@dataclass(frozen=True)
class TrainingRun:
    """One run: seconds of each step, the final loss (None if it is not a number), and whether all ranks agree."""

    seconds: tuple[float, ...]
    loss: float | None
    alike: bool

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def jitter(self) -> float:
        """How much longer than the median the slowest 5 % of the steps take at least, as a fraction."""
        ranked = sorted(self.seconds)
        return ranked[math.ceil(_LATE_SHARE * len(ranked)) - 1] / self.median - 1


@dataclass(frozen=True)
class TrainingFigures:
    """The valid part of the output. `batch` is images per rank and step; missing values are None or empty.

    missing    nodes whose Python has no PyTorch
    problems   problems of the output, in words
    """

    version: int | None = None
    ranks: int | None = None
    batch: int | None = None
    on_gpus: bool = False
    hosts: tuple[_Text, ...] = ()
    devices: tuple[_Text, ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[TrainingRun, ...] = ()
    ended: bool = False
    missing: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def rates(self) -> tuple[float, ...]:
        """Images per second of all ranks together by run, from the median step."""
        return tuple((self.batch or 0) * (self.ranks or 0) / run.median for run in self.runs)

    @property
    def judged(self) -> int | None:
        """The index of the median run, the lower one of two; None without runs."""
        ranked = sorted(range(len(self.runs)), key=lambda number: self.rates[number])
        return ranked[(len(ranked) - 1) // 2] if ranked else None

    @property
    def relative_spread(self) -> float | None:
        """(largest - smallest) / median of the runs; None with fewer than two runs."""
        if len(self.runs) < 2 or self.judged is None:
            return None
        return (max(self.rates) - min(self.rates)) / self.rates[self.judged]


def read_training(text: str) -> TrainingFigures:
    """Return the figures in a job's output, as far as they go; nothing is raised."""
    settings: Mapping[str, Any] | None = None
    runs, problems, missing, ended = list[TrainingRun](), list[str](), list[str](), False
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == MISSING:
            missing.append(rest.strip()[:63])
        if word != PREFIX:
            continue
        kind, _, text_of_line = rest.partition(" ")
        try:
            data = json.loads(text_of_line)
            if kind == "begin" and settings is None:
                settings = _about(data)
            elif kind == "run" and settings is not None and data["run"] == len(runs) + 1:
                runs.append(_run(data))
            elif kind == "end" and data["runs"] == len(runs):
                ended = True
            else:
                problems.append(f"a line '{kind[:20]}' is out of place")
        except (ValueError, TypeError, LookupError, RecursionError, AttributeError):
            problems.append(f"a line '{kind[:20]}' cannot be read")
    return TrainingFigures(
        **(settings or {}), runs=tuple(runs), ended=ended, missing=tuple(sorted({*missing})), problems=tuple(problems)
    )


def _about(data: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("version", "ranks", "batch", "on_gpus", "hosts", "devices")
    about = read(TrainingFigures, {key: data[key] for key in keys})
    how = {name: data[name] for name in ("width", "pixels", "precision", "torch") if isinstance(data[name], str | int)}
    return {**{key: getattr(about, key) for key in keys}, "how": how}


def _run(data: Mapping[str, Any]) -> TrainingRun:
    run = read(TrainingRun, data)
    if min(run.seconds) <= 0:
        raise ValueError("a step took no time")
    return run
