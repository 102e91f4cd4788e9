"""The figures of a measurement: those of each run, the one in the middle, and what keeps them from being whole."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from components.validation.collectives import COLLECTIVES
from components.validation.model import JobReport, Measurement
from components.validation.nccl_tests import Row, Table, Timing, parse
from components.validation.sizes import format_size

REDUCED = "# Reducing maxBytes"  # how nccl-tests begins to say that it goes no further
LARGEST_SPREAD = 0.15  # of the runs at the gate size; NVLink's differ by 2 %
# Sockets share the CPUs with what encrypts, and with all else: on sound machines their runs differed by up to 18 %.
LARGEST_SPREAD_OF_SOCKETS = 0.3


def largest_spread(transport: str | None) -> float:
    """How far the runs of a sound measurement may lie apart, (largest - smallest) / middle."""
    return LARGEST_SPREAD_OF_SOCKETS if transport == "sockets" else LARGEST_SPREAD


_MOST_QUOTED = 6  # places of wrong data


@dataclass(frozen=True)
class Figures:
    """`tables` of the run over all sizes and of those at the gate size alone; `gates` the row of each at that size.

    `rows` are those of the first run, but at the gate size the one that is judged; `peak` is the best of them by its
    bus bandwidth out of place.

    `wrong` counts wrong elements over all rows of all runs; None unless every one was checked to its end.
    `gate` is the run in the middle by its bus bandwidth, the lower one of two; None where no run has the size.
    """

    tables: tuple[Table, ...]
    gates: tuple[Row, ...]
    peak: Row | None
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
    def runs(self) -> tuple[float, ...]:
        """Bus bandwidths at the gate size, GB/s, in the order of the runs."""
        return tuple(_busbw(gate) for gate in self.gates)

    @property
    def relative_spread(self) -> float | None:
        """(largest - smallest) / middle; None where fewer than two runs say anything."""
        if len(self.gates) < 2 or self.gate is None:
            return None
        return (max(self.runs) - min(self.runs)) / self.gate.busbw_gb_per_s


def _busbw(row: Row) -> float:
    return row.out_of_place.busbw_gb_per_s


def read_figures(asked: Measurement, report: JobReport) -> Figures:
    """The figures in a job's outputs, as far as they go."""
    tables = tuple(parse(text, collective=asked.collective) for text in (report.output, *report.repeats))
    at = asked.row_bytes(asked.gate_bytes)
    sound = [_sound_rows(table, report) for table in tables]
    figures = Figures(
        tables=tables,
        gates=tuple(row for rows in sound for row in rows if row.size_bytes == at),
        peak=None,
        wrong=_all_wrong(_wrong(table, asked.collective) for table in tables),
    )
    return replace(figures, peak=max(figures.rows if sound[0] else (), key=_busbw, default=None))


def _sound_rows(table: Table, report: JobReport) -> tuple[Row, ...]:
    """Of a job that was ended, what it had finished counts; if it completed, a table with problems gives no figure."""
    ended = report.state != "COMPLETED" and table.only_unfinished
    return table.rows if ended or not table.problems else ()


def doubts(asked: Measurement, report: JobReport, figures: Figures) -> list[str]:
    """Why the figures are not a whole and right measurement; empty where they are."""
    first, *others = figures.tables
    found = _without_mpi(asked, report)
    found += _table_doubts(asked, first, asked.sizes())
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


def _without_mpi(asked: Measurement, report: JobReport) -> list[str]:
    """Each rank prints a table of its own where they do not know of one another."""
    if asked.ranks < 2 or report.output.count("# nThread ") < 2:
        return []
    return [
        "every rank ran by itself: the program was built without MPI (nccl-tests: make MPI=1), or its MPI does not "
        "speak Slurm's PMIx"
    ]


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


def wrong_data(figures: Figures) -> str:
    """What proves that data was wrong: the runs and sizes with wrong elements, in the words of their tables."""
    found = []
    for number, table in enumerate(figures.tables, 1):
        run = f"run {number}" if len(figures.tables) > 1 else "the table"
        for row in table.rows:
            halves = {"out of place": row.out_of_place.wrong, "in place": row.in_place.wrong}
            words = [f"{wrong} {half}" for half, wrong in halves.items() if wrong]
            if words:
                found.append(f"{run} at {format_size(row.size_bytes)}: {' and '.join(words)}")
        if table.out_of_bounds:
            found.append(f"{run} ends with 'Out of bounds values : {table.out_of_bounds}'")
    return "; ".join(found[:_MOST_QUOTED])


def _all_wrong(counts: Iterable[int | None]) -> int | None:
    each = list(counts)
    total = sum(count for count in each if count is not None)
    return total if total or None not in each else None
