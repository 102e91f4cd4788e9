"""Parse the table of nccl-tests and recompute its bandwidths.

Times in microseconds, bandwidths in 1e9 bytes per second, sizes in bytes. algbw = bytes / time, and busbw is algbw
times a factor of the collective. Both are recomputed because the table rounds them to 0.01; a printed value that
rounding cannot explain is a problem.

Formats: v2.0 to v2.19 (src/common.cu, src/util.cu, src/<collective>.cu). Up to v2.11 there is no `root` column, and
`error` holds the largest deviation instead of the number of wrong elements in `#wrong`; without checks (`-c 0`) it is
`N/A`. Columns are found by their names, so more columns do no harm.
"""

import math
import re
from dataclasses import dataclass

from components.validation.collectives import COLLECTIVES, Collective
from components.validation.nccl_output import separate

_RANK = re.compile(r"#\s+Rank\s+(?P<rank>\d+)\s.*?Pid\s+\d+ on\s+(?P<host>\S+)", re.ASCII)
_STARTING = re.compile(r"# Collective test starting: (?P<program>\S+)\s*", re.ASCII)
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values\s*: (?P<count>\d{1,18}) (?:OK|FAILED)\s*", re.ASCII)
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: (?P<value>\S+)(?: OK| FAILED)?\s*", re.ASCII)
_STOPS = "the output stops before the table's summary"
_INTEGER = re.compile(r"\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}(?:\.(?P<decimals>\d{1,18}))?(?:e(?P<exponent>[+-]\d{1,3}))?", re.ASCII)
_TYPE_BYTES = {
    **dict.fromkeys(("int8", "uint8", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("float", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "int64", "uint64"), 8),
}


@dataclass(frozen=True)
class Timing:
    """One half of a row: `wrong` counts wrong elements, None without a count; `checked` is False without a check."""

    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    wrong: int | None
    checked: bool


@dataclass(frozen=True)
class Row:
    size_bytes: int
    out_of_place: Timing
    in_place: Timing


@dataclass(frozen=True)
class Table:
    """The content of the output, as far as it goes.

    ranks           None if the output does not name them
    hosts           machines of the ranks
    out_of_bounds   None unless the program printed it
    average_busbw_gb_per_s   recomputed over both halves of every row; None unless the table is complete and consistent
    problems        sentences about an incomplete or inconsistent table
    """

    rows: tuple[Row, ...]
    ranks: int | None
    hosts: tuple[str, ...]
    out_of_bounds: int | None
    average_busbw_gb_per_s: float | None
    problems: tuple[str, ...]

    @property
    def only_unfinished(self) -> bool:
        """Whether the only problem is that the output ends too early."""
        return len(self.problems) == 1 and self.problems[0].startswith(_STOPS)


class _Unreadable(Exception):
    """A line of the table is truncated, damaged or inconsistent."""


@dataclass(frozen=True)
class _Printed:
    """A printed number, and half the unit of its last digit: its rounding error."""

    value: float
    half: float


@dataclass(frozen=True)
class _Columns:
    names: tuple[str, ...]
    starts: tuple[int, int]
    width: int


def parse(output: str, collective: str = "all_reduce") -> Table:
    """Return the table in a job's standard output, with or without NCCL's log lines. Raises nothing."""
    text, _ = separate(output)
    lines = text.split("\n")
    cut = lines.pop()  # the part after the last newline may be incomplete
    hosts = _hosts_by_rank(lines)
    reader = _Reader(max(hosts) + 1 if hosts else None, COLLECTIVES[collective])
    for line in lines:
        reader.read(line)
    if hosts and sorted(hosts) != list(range(max(hosts) + 1)):
        reader.problems.append(f"only ranks {sorted(hosts)} are named in the output")
    return reader.table(tuple(dict.fromkeys(hosts.values())), cut)


def _hosts_by_rank(lines: list[str]) -> dict[int, str]:
    matches = (_RANK.match(line) for line in lines)
    return {int(match["rank"][:9]): match["host"] for match in matches if match}


class _Reader:
    def __init__(self, ranks: int | None, collective: Collective) -> None:
        self.ranks, self.collective = ranks, collective
        self.problems: list[str] = []
        self.rows: list[Row] = []
        self.columns: _Columns | None = None
        self.slack = 0.0  # error of the sum of bus bandwidths from rounded times
        self.out_of_bounds: int | None = None
        self.average: _Printed | None = None

    def read(self, line: str) -> None:
        fields = line.split()
        try:
            if fields[:2] == ["#", "size"]:
                self._read_header(fields[1:])
            elif match := _STARTING.fullmatch(line):
                if not match["program"].startswith(self.collective.program):
                    raise _Unreadable(f"{match['program']} ran instead of {self.collective.program}")
            elif match := _OUT_OF_BOUNDS.fullmatch(line):
                self.out_of_bounds = int(match["count"])
            elif match := _AVERAGE.fullmatch(line):
                self.average = _printed(match["value"], significant=6)
            elif fields and self.columns and _INTEGER.fullmatch(fields[0]):
                self._read_row(self.columns, fields)
        except _Unreadable as problem:
            self.problems.append(str(problem))

    def _read_header(self, names: list[str]) -> None:
        if self.columns:
            raise _Unreadable("the output has more than one table: the ranks did not run as one program")
        starts = [place for place, name in enumerate(names) if name == "time"]
        if "cputime" in names:
            raise _Unreadable("the table has CPU times (-C), which do not measure bandwidth")
        if len(starts) != 2 or any(names[s + 1 : s + 3] != ["algbw", "busbw"] for s in starts):
            raise _Unreadable(f"the table's header is not one of nccl-tests: {' '.join(names)}")
        if any(names[s + 3 : s + 4] not in (["#wrong"], ["error"]) for s in starts):
            raise _Unreadable(f"the table's header is incomplete or unknown: {' '.join(names)}")
        width = len(names) + names.count("timestamp")  # a timestamp is two words, date and time
        self.columns = _Columns(tuple(names), (starts[0], starts[1]), width)

    def _read_row(self, columns: _Columns, fields: list[str]) -> None:
        if len(fields) != columns.width:
            raise _Unreadable(f"the row of {fields[0]} bytes has {len(fields)} of {columns.width} fields")
        if self.ranks is None:
            raise _Unreadable(f"the row of {fields[0]} bytes cannot be judged: the output names no ranks")
        size, count, kind = int(fields[0]), fields[1], fields[2]
        elements = self.collective.elements(int(count), self.ranks) if _INTEGER.fullmatch(count) else 0
        if size == 0 or elements * _TYPE_BYTES.get(kind, 0) != size:
            raise _Unreadable(f"the row of {size} bytes contradicts itself: {count} elements of type {kind}")
        if any(row.size_bytes == size for row in self.rows):
            raise _Unreadable(f"{size} bytes appear twice in the table")
        halves = [self._timing(columns, fields, start, size, self.ranks) for start in columns.starts]
        self.rows.append(Row(size, halves[0], halves[1]))

    def _timing(self, columns: _Columns, fields: list[str], start: int, size: int, ranks: int) -> Timing:
        time, algbw, busbw = (_printed(word) for word in fields[start : start + 3])
        if time.value == 0:
            raise _Unreadable(f"the row of {size} bytes has a time of 0")
        factor = self.collective.factor(ranks)
        exact = size / time.value / 1e3
        slowest = size / (time.value + time.half) / 1e3
        fastest = size / (time.value - time.half) / 1e3 if time.value > time.half else math.inf
        for name, printed, scale in (("algbw", algbw, 1.0), ("busbw", busbw, factor)):
            if not _overlap(printed, slowest * scale, fastest * scale if scale else 0.0):
                raise _Unreadable(
                    f"at {size} bytes the printed {name} of {printed.value:g} GB/s does not follow from"
                    f" {fields[start]} us over {ranks} ranks, which gives {exact * scale:.3f}"
                )
        self.slack += (fastest - slowest) * factor if factor else 0.0
        deviation = _printed(fields[start + 3]).value if fields[start + 3] != "N/A" else None
        counted = deviation is not None and columns.names[start + 3] == "#wrong"
        wrong = int(deviation) if deviation is not None and counted else None
        return Timing(time.value, exact, exact * factor, wrong, checked=deviation is not None)

    def table(self, hosts: tuple[str, ...], cut: str) -> Table:
        problems = list(self.problems)
        average = None
        if self.columns is None:
            problems.append("the output has no table")
        elif self.out_of_bounds is None or self.average is None:
            tail = f"; it ends with {cut.strip()[-80:]!r}" if cut.strip() else ""
            problems.append(f"{_STOPS}{tail}")
        elif not self.rows:
            problems.append("the table has no rows")
        elif not problems:
            both = [half.busbw_gb_per_s for row in self.rows for half in (row.out_of_place, row.in_place)]
            average = math.fsum(both) / len(both)
            slack = self.slack / len(both)
            if not _overlap(self.average, average - slack, average + slack):
                problems.append(
                    f"the printed average of {self.average.value:g} GB/s does not follow from the rows,"
                    f" which give {average:g}"
                )
            counts = [half.wrong for row in self.rows for half in (row.out_of_place, row.in_place)]
            if None not in counts and any(counts) != (self.out_of_bounds > 0):
                problems.append(f"the summary reports {self.out_of_bounds} out of bounds, but the rows do not agree")
        return Table(
            tuple(self.rows),
            self.ranks,
            hosts,
            self.out_of_bounds,
            average if not problems else None,
            tuple(problems),
        )


def _overlap(printed: _Printed, low: float, high: float) -> bool:
    # 1e-9 covers binary arithmetic.
    return printed.value - printed.half <= high * (1 + 1e-9) and printed.value + printed.half >= low * (1 - 1e-9)


def _printed(word: str, significant: int | None = None) -> _Printed:
    """Return the number in `word`; `significant` digits for C's %g, which drops trailing zeros of decimals."""
    match = _NUMBER.fullmatch(word)
    value = float(word) if match else math.inf
    if match is None or not math.isfinite(value):
        raise _Unreadable(f"{word!r} is not a number")
    last = int(match["exponent"] or 0) - len(match["decimals"] or "")
    if significant is not None and value > 0 and (match["exponent"] or -last < significant):
        last = math.floor(math.log10(value)) - significant + 1
    return _Printed(value, 0.5 * 10.0**last)
