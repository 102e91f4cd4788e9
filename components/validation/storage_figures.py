"""The figures that nodes report of their storage: lines of JSON in the output of a user's job, which is untrusted."""

import json
import re
import statistics
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from components.validation.untrusted import read

PREFIX = "tailrack-storage"
RUNS = 3
WRITE, READ, FILES, LATENCY, LATE = "write_mb_per_s", "read_mb_per_s", "files_per_s", "latency_us", "latency_p99_us"
# Figures with a floor, by key, with the words for people. Lower values of latency are better.
FIGURES: Mapping[str, str] = {
    WRITE: "MB/s written",
    READ: "MB/s read",
    FILES: "small files/s",
    LATENCY: "us of latency",
}
_LONGEST = 400  # characters of a text from a node


@dataclass(frozen=True)
class StorageFigures:
    """Figures of one target on one node.

    runs         one value per run, by figure (FIGURES and LATE)
    direct       whether fio used direct I/O; None if unknown
    written_by   the node that wrote the file that this node read; empty for the node itself
    read_only    whether the user who measures cannot write there; then only reading is measured
    checkpoint   ranks, bytes and seconds of saving and restoring a checkpoint, such as `save_seconds`
    problem      the reason for missing figures; empty without one
    """

    runs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    direct: bool | None = None
    file_system: str = ""
    written_by: str = ""
    read_only: bool = False
    checkpoint: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""

    def median(self, name: str) -> float | None:
        """Return the median of a figure's runs; None if it was not measured."""
        runs = self.runs.get(name)
        return statistics.median_low(runs) if runs else None

    @property
    def missing(self) -> list[str]:
        """Return the figures without all runs, except those that a read-only target cannot have."""
        expected = (READ, LATENCY) if self.read_only else FIGURES
        return [name for name in expected if len(self.runs.get(name, ())) != RUNS]


def line_of(node: str, target: str, **values: Any) -> str:
    """Return the line in which a node reports a part of its figures, with four digits each."""
    if "runs" in values:
        values["runs"] = {name: [float(f"{run:.4g}") for run in runs] for name, runs in values["runs"].items()}
    return f"{PREFIX} {json.dumps({'node': node, 'target': target, **values}, sort_keys=True)}"


def read_storage(output: str) -> dict[tuple[str, str], StorageFigures]:
    """Return the figures in a job's output by node and target, as far as they go. Nothing is raised."""
    parts: dict[tuple[str, str], StorageFigures] = {}
    # srun may put the lines of several tasks on one.
    for mark in re.finditer(f"{PREFIX} ", output):
        # Missing figures are reported by the verdict.
        with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
            data, _ = json.JSONDecoder().raw_decode(output, mark.end())
            place = str(data["node"])[:_LONGEST], str(data["target"])[:_LONGEST]
            parts[place] = _joined(parts.get(place, StorageFigures()), read(StorageFigures, data))
    return parts


def _joined(before: StorageFigures, part: StorageFigures) -> StorageFigures:
    runs = {name: part.runs[name][:RUNS] for name in (*FIGURES, LATE) if name in part.runs}
    return StorageFigures(
        {**before.runs, **runs},
        before.direct if part.direct is None else part.direct and before.direct is not False,
        _one_line(part.file_system) or before.file_system,
        _one_line(part.written_by) or before.written_by,
        before.read_only or part.read_only,
        {**before.checkpoint, **part.checkpoint},
        before.problem or _one_line(part.problem),
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]
