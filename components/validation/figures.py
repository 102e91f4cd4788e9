"""The figures of a measurement: those of each run, the one in the middle, and what keeps them from being whole."""

from collections.abc import Iterable
from dataclasses import dataclass

from components.validation.collectives import COLLECTIVES
from components.validation.model import JobReport, Measurement
from components.validation.nccl_tests import Row, Table, Timing, parse
from components.validation.sizes import format_size

REDUCED = "# Reducing maxBytes"  # how nccl-tests begins to say that it goes no further


@dataclass(frozen=True)
class Figures:
    """`tables` of the run over all sizes and of those at the gate size alone; `gates` what each says out of place.

    `peak` is the row with the best bus bandwidth out of place.

    `wrong` counts wrong elements over all rows of all runs; None unless every one was checked to its end.
    `gate` is the run in the middle by its bus bandwidth, the lower one of two; None where no run has the size.
    """

    tables: tuple[Table, ...]
    gates: tuple[Timing, ...]
    peak: Row | None
    wrong: int | None

    @property
    def gate(self) -> Timing | None:
        ranked = sorted(self.gates, key=lambda gate: gate.busbw_gb_per_s)
        return ranked[(len(ranked) - 1) // 2] if ranked else None

    @property
    def runs(self) -> tuple[float, ...]:
        """Bus bandwidths at the gate size, GB/s, in the order of the runs."""
        return tuple(gate.busbw_gb_per_s for gate in self.gates)

    @property
    def relative_spread(self) -> float | None:
        """(largest - smallest) / middle; None where fewer than two runs say anything."""
        if len(self.gates) < 2 or self.gate is None:
            return None
        return (max(self.runs) - min(self.runs)) / self.gate.busbw_gb_per_s


def read_figures(asked: Measurement, report: JobReport) -> Figures:
    """The figures in a job's outputs, as far as they go."""
    tables = tuple(parse(text, collective=asked.collective) for text in (report.output, *report.repeats))
    at = asked.row_bytes(asked.gate_bytes)
    sound = [_sound_rows(table, report) for table in tables]
    return Figures(
        tables=tables,
        gates=tuple(row.out_of_place for rows in sound for row in rows if row.size_bytes == at),
        peak=max(sound[0], key=lambda row: row.out_of_place.busbw_gb_per_s, default=None),
        wrong=_all_wrong(_wrong(table, asked.collective) for table in tables),
    )


def _sound_rows(table: Table, report: JobReport) -> tuple[Row, ...]:
    """Of a job that was ended, what it had finished counts; if it completed, a table with problems gives no figure."""
    ended = report.state != "COMPLETED" and table.only_unfinished
    return table.rows if ended or not table.problems else ()


def doubts(asked: Measurement, report: JobReport, figures: Figures) -> list[str]:
    """Why the figures are not a whole and right measurement; empty where they are."""
    first, *others = figures.tables
    found = _table_doubts(asked, first, asked.sizes())
    for number, table in enumerate(others, 2):
        found += [f"run {number}: {doubt}" for doubt in _table_doubts(asked, table, (asked.gate_bytes,))]
    if report.exit_code is None:
        found.append("the job's exit code is not known")
    if len(figures.tables) != asked.runs:
        found.append(f"{len(figures.tables)} runs are there where {asked.runs} were asked for")
    if figures.wrong is None:
        found.append("whether the data was right is not known")
    if REDUCED in report.output:
        found.append("the GPUs have no memory for the largest size; make max_bytes and gate_bytes smaller")
    return found


def _table_doubts(asked: Measurement, table: Table, sizes: Iterable[int]) -> list[str]:
    found = list(table.problems)
    measured = {row.size_bytes for row in table.rows}
    missing = [format_size(size) for size in sizes if asked.row_bytes(size) not in measured]
    if missing:
        found.append(f"no complete row for {', '.join(missing)}")
    if table.ranks is None:
        found.append("the output names no ranks")
    elif table.ranks != asked.ranks:
        found.append(f"{table.ranks} ranks took part where {asked.ranks} were asked for")
    if len(table.hosts) != asked.nodes:
        found.append(f"the ranks ran on {len(table.hosts)} nodes where {asked.nodes} were asked for")
    return found


def _wrong(table: Table, collective: str) -> int | None:
    """Wrong elements over all rows; None unless every one was checked and the program said so to its end."""
    halves = [half for row in table.rows for half in (row.out_of_place, row.in_place)]
    counted = sum(half.wrong for half in halves if half.wrong is not None)
    if counted or table.out_of_bounds:
        return counted or table.out_of_bounds
    compared = halves if COLLECTIVES[collective].checks_all else [row.out_of_place for row in table.rows]
    return 0 if compared and all(half.checked for half in compared) and table.out_of_bounds == 0 else None


def _all_wrong(counts: Iterable[int | None]) -> int | None:
    each = list(counts)
    total = sum(count for count in each if count is not None)
    return total if total or None not in each else None
