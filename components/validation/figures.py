"""The figures of a measurement: each run, the median run, and problems that make them incomplete."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any

from components.validation.model import COLLECTIVES, JobReport, Measurement, format_size
from components.validation.nccl_tests import Row, Table, Timing, distinct, parse
from components.validation.slurm_jobs import without_middle

REDUCED = "# Reducing maxBytes"  # nccl-tests prints this when it limits the sizes
LARGEST_SPREAD = 0.15  # for the runs at the gate size; NVLink's differ by 2 %
# Sockets share the CPUs with encryption and other work: runs of healthy machines differed by up to 18 %.
LARGEST_SPREAD_OF_SOCKETS = 0.3


def largest_spread(transport: str | None) -> float:
    """Return the largest spread of a valid measurement, (largest - smallest) / median."""
    return LARGEST_SPREAD_OF_SOCKETS if transport == "sockets" else LARGEST_SPREAD


_MOST_QUOTED = 6  # of places with wrong data
_WITHOUT_MPI = (
    "each rank ran alone: the program was built without MPI (nccl-tests: make MPI=1), or its MPI does not support "
    "Slurm's PMIx"
)


@dataclass(frozen=True)
class Figures:
    """The figures of all runs.

    tables   the run over all sizes, then the runs at the gate size
    gates    the row at the gate size of each run
    rows     rows of the first run, but at the gate size the judged row
    sound    whether the first run has usable rows
    peak     the row of them with the best out-of-place bus bandwidth
    wrong    wrong elements in all runs; None unless every run was checked completely
    gate     the median run by bus bandwidth, the lower one of two; None if no run has the size
    """

    tables: tuple[Table, ...]
    gates: tuple[Row, ...]
    sound: bool
    wrong: int | None

    @property
    def judged(self) -> Row | None:
        ranked = sorted(self.gates, key=_busbw)
        return ranked[(len(ranked) - 1) // 2] if ranked else None

    @property
    def gate(self) -> Timing | None:
        return self.judged.out_of_place if self.judged else None

    @property
    def rows(self) -> tuple[Row, ...]:
        judged = self.judged
        return tuple(judged if judged and row.size_bytes == judged.size_bytes else row for row in self.tables[0].rows)

    @property
    def peak(self) -> Row | None:
        return max(self.rows if self.sound else (), key=_busbw, default=None)

    @property
    def runs(self) -> tuple[float, ...]:
        """Bus bandwidths at the gate size in GB/s, in the order of the runs."""
        return tuple(_busbw(gate) for gate in self.gates)


def spread_of(runs: Sequence[float]) -> dict[str, Any] | None:
    """Return the runs, and (largest - smallest) / median as `relative`; None with fewer than two runs."""
    median = median_low(runs) if len(runs) > 1 else 0
    return {"runs": list(runs), "relative": (max(runs) - min(runs)) / median} if median else None


def _busbw(row: Row) -> float:
    return row.out_of_place.busbw_gb_per_s


def read_figures(settings: Measurement, report: JobReport) -> Figures:
    """Return the figures in a job's outputs, as far as they go."""
    tables = tuple(parse(text, collective=settings.collective) for text in (report.output, *report.repeats))
    gate_bytes = settings.row_bytes(settings.gate_bytes)
    sound = [_sound_rows(table, report) for table in tables]
    wrong = [_wrong(table, settings.collective) for table in tables]
    found = sum(filter(None, wrong))
    return Figures(
        tables=tables,
        gates=tuple(row for rows in sound for row in rows if row.size_bytes == gate_bytes),
        sound=bool(sound[0]),
        wrong=found if found or None not in wrong else None,
    )


def _sound_rows(table: Table, report: JobReport) -> tuple[Row, ...]:
    """Return the usable rows: an aborted job's finished rows, but none of a completed job's faulty table."""
    aborted = report.state != "COMPLETED" and table.only_unfinished
    return table.rows if aborted or not table.problems else ()


def doubts(settings: Measurement, report: JobReport, figures: Figures) -> list[str]:
    """Return the reasons why the figures are not complete and correct; empty if they are."""
    first, *repeats = figures.tables
    problems = _table_doubts(settings, first, settings.sizes())
    if report.output.count("# nThread ") > 1:  # each rank that is not connected prints its own table
        problems.insert(0, _WITHOUT_MPI)
    for number, table in enumerate(repeats, 2):
        problems += [f"run {number}: {problem}" for problem in _table_doubts(settings, table, (settings.gate_bytes,))]
    if report.exit_code is None:
        problems.append("the job's exit code is unknown")
    if len(figures.tables) != settings.runs:
        problems.append(f"{len(figures.tables)} runs were found instead of {settings.runs}")
    if figures.wrong is None:
        problems.append("the data was not checked completely")
    if REDUCED in report.output:
        problems.append("the GPUs have too little memory for the largest size; reduce max_bytes and gate_bytes")
    return problems


def _table_doubts(settings: Measurement, table: Table, sizes: Iterable[int]) -> list[str]:
    problems = list(table.problems)
    measured = {row.size_bytes for row in table.rows}
    missing = [format_size(size) for size in sizes if settings.row_bytes(size) not in measured]
    if missing:
        problems.append(f"no complete row for {', '.join(missing)}")
    if table.ranks is None:
        problems.append("the output names no ranks")
    elif table.ranks != settings.ranks:
        problems.append(f"{table.ranks} ranks took part instead of {settings.ranks}")
    if len(table.hosts) != settings.nodes:
        problems.append(f"the ranks ran on {len(table.hosts)} nodes instead of {settings.nodes}")
    return problems


def _wrong(table: Table, collective: str) -> int | None:
    """Return wrong elements over all rows; None unless every row was checked and the program completed."""
    halves = [half for row in table.rows for half in (row.out_of_place, row.in_place)]
    counted = sum(half.wrong for half in halves if half.wrong is not None)
    if counted or table.out_of_bounds:
        return counted or table.out_of_bounds
    compared = halves if COLLECTIVES[collective].checks_all else [row.out_of_place for row in table.rows]
    return 0 if compared and all(half.checked for half in compared) and table.out_of_bounds == 0 else None


def wrong_data(figures: Figures) -> str:
    """Return the runs and sizes with wrong elements, as in their tables."""
    places = []
    for number, table in enumerate(figures.tables, 1):
        run = f"run {number}" if len(figures.tables) > 1 else "the table"
        for row in table.rows:
            halves = {"out of place": row.out_of_place.wrong, "in place": row.in_place.wrong}
            counts = [f"{wrong} {half}" for half, wrong in halves.items() if wrong]
            if counts:
                places.append(f"{run} at {format_size(row.size_bytes)}: {' and '.join(counts)}")
        if table.out_of_bounds:
            places.append(f"{run} ends with 'Out of bounds values : {table.out_of_bounds}'")
    return "; ".join(places[:_MOST_QUOTED])


_RUN = re.compile(r"[a-z]+\.([0-9]{1,9})(?:\.|$)")
LOG_LIMIT = 200_000  # characters of NCCL's log


def with_tables(
    report: Mapping[str, Any], collectives: Sequence[str] = ("all_reduce",), runs: int = 1
) -> dict[str, Any]:
    """Return a job's report for JobReport, with tables and NCCL's log from the job's files if they exist.

    runs   runs of each collective. The report is that of the first one, and `more` has those of the others by name

    After a failure the rest of the output stays behind the first table, because it has the reason.
    """
    result, files = {key: value for key, value in report.items() if key != "files"}, report.get("files", {})
    if len(collectives) == 1:
        parts = [_of_runs(files, collectives[0], 1, sys.maxsize)]
    else:
        parts = [_of_runs(files, name, 1 + runs * place, runs) for place, name in enumerate(collectives)]
    failed = report["state"] != "COMPLETED" or report["exit_code"]
    more = {name: part for name, part in zip(collectives[1:], parts[1:], strict=True) if "output" in part}
    if "output" in parts[0] and failed:
        parts[0]["output"] += report["output"]
    return {**result, **parts[0], "more": {} if failed else more}


def _of_runs(files: Mapping[str, str], collective: str, first: int, count: int) -> dict[str, Any]:
    """Return the part of a report that comes from some runs' files; a log without a run's number belongs to all."""

    def of(word: str, more: int = 0) -> list[str]:
        numbers = {name: int(match[1]) if (match := _RUN.match(name)) else first for name in files}
        names = [name for name in files if name.startswith(word) and first <= numbers[name] < first + count + more]
        return sorted(names, key=lambda name: (numbers[name], name))

    tables = [_table(files, name, collective) for name in of("table.")]
    log = distinct("".join(files[name] for name in of("log.")))
    log = log if len(log) <= LOG_LIMIT else without_middle(log[: LOG_LIMIT // 2], log[-LOG_LIMIT // 2 :])
    part: dict[str, Any] = {"beside": [files[name] for name in of("beside.", 1)], "log": log}
    return part | ({"output": tables[0], "repeats": tables[1:]} if tables else {})


def _table(files: Mapping[str, str], name: str, collective: str) -> str:
    """Return a run's table: the exact one if it exists and is complete (rank.sh), else the printed one."""
    printed, exact = files[name], files.get(name.replace("table", "figures"), "")
    if not exact or parse(exact, collective=collective).problems:
        return printed
    return exact + "".join(line for line in printed.splitlines(keepends=True) if line.startswith(REDUCED))
