"""Read what NCCL and nccl-tests print: the table, whose bandwidths are recomputed, log lines, JSON and versions.

Times in microseconds, bandwidths in 1e9 bytes per second, sizes in bytes. algbw = bytes / time, and busbw is algbw
times a factor of the collective. Both are recomputed because the table rounds them to 0.01; a printed value that
rounding cannot explain is a problem.

Formats: v2.0 to v2.19 (src/common.cu, src/util.cu, src/<collective>.cu). Up to v2.11 there is no `root` column, and
`error` holds the largest deviation instead of the number of wrong elements in `#wrong`; without checks (`-c 0`) it is
`N/A`. Columns are found by their names, so more columns do no harm.

Source of log lines: `ncclDebugLog` in NCCL's src/debug.cc. A line is `[time] host:pid:tid [device] NCCL INFO message`;
the time is optional. nccl-tests prints a row in three pieces, so a log line may start inside a row.

`python3 tailrack.pyz nccl-table FILE`, where rank 0 has run, prints the JSON output of nccl-tests (`-J`, since 2.17.3)
as its table, with all digits. The file contains the whole environment, including secrets: only the table is printed.
Exits with 1 and prints nothing if the file is incomplete, as after a killed program. Source: src/util.cu of nccl-tests,
versions 1 to 3 of the file.
"""

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.validation.model import COLLECTIVES, Collective

# At most two words before NCCL (TRACE: seconds and place), or the rest of a line would be scanned for each tag.
_TAG = r":\d+:\d+ \[-?\d+\] (?:\S+ ){0,2}?NCCL (?:INFO|WARN|TRACE) "
_LOG_LINE = re.compile(rf"(?:\[[^\]]*\] )?(?P<host>[A-Za-z0-9][\w.-]*){_TAG}(?P<message>.*)", re.ASCII)
_CHANNEL = re.compile(r"^(?:Channel|CollNet|NVLS|Tree) \S+ : .*?(?= via )")
TITLES = "# size count type redop root" + 2 * " time algbw busbw #wrong"
_VERSION = r"([0-9][0-9A-Za-z.+-]{0,30})"
_NCCL = re.compile(rf"NCCL version {_VERSION}", re.ASCII)
_TESTS = re.compile(rf"nccl-tests version {_VERSION}", re.ASCII)
# Numbers of ncclGetVersion: of the header that nccl-tests was built with, and of the library that it loaded.
_NUMBERS = re.compile(r"nccl-headers=(\d{3,6}) nccl-library=(\d{3,6})", re.ASCII)


@dataclass(frozen=True)
class LogLine:
    host: str
    message: str


def separate(output: str) -> tuple[str, tuple[LogLine, ...]]:
    """Return the program's text with torn lines joined, and NCCL's lines in their order.

    The text ends with a newline only if the program's last line did.
    """
    lines = output.replace("\r\n", "\n").split("\n")
    whole = [_LOG_LINE.match(line) for line in lines]
    hosts = {match["host"] for match in whole if match}
    # A torn row has no space before the host's name ("-1node7:591:..."), so only known names can be found.
    names = "|".join(re.escape(host) for host in sorted(hosts, key=len, reverse=True))
    torn = re.compile(rf"(?P<host>{names}){_TAG}(?P<message>.*)", re.ASCII) if hosts else None
    text: list[str] = []
    log: list[LogLine] = []
    for number, (line, match) in enumerate(zip(lines, whole, strict=True)):
        match = match or (torn.search(line) if torn else None)
        if match is None:
            text.append(line if number == len(lines) - 1 else line + "\n")
            continue
        text.append(line[: match.start()])
        log.append(LogLine(match["host"], match["message"]))
    return "".join(text), tuple(log)


def distinct(log: str) -> str:
    """Return the log without a host's repetitions for each channel and rank, to fit into a report."""
    seen: set[tuple[str, str]] = set()
    lines = []
    for line in log.splitlines():
        match = _LOG_LINE.match(line)
        message = (match["host"], _CHANNEL.sub("", match["message"])) if match else ("", line)
        if message not in seen:
            seen.add(message)
            lines.append(line + "\n")
    return "".join(lines)


def table(data: dict[str, Any]) -> str:
    """Return the table. Raises KeyError, TypeError or ValueError if the file lacks data."""
    config = data["config"]
    if (config["nthreads"], config["ngpus"]) != ("1", "1"):
        raise ValueError("the file contains only the first GPU of each process")
    count = data["out_of_bounds"]["count"]
    # 2.17 has a typo in its name.
    mean = data.get("average_bus_bandwidth") or data["average_bus_bandwidith"]
    lines = [
        f"# Collective test starting: {Path(data['args'][0]).name}",
        *(f"# Rank {device['rank']} Pid {device['pid']} on {device['hostname']}" for device in config["devices"]),
        TITLES,
        *(_row(row) for row in data["results"]),
        f"# Out of bounds values : {count} {'OK' if count == '0' else 'FAILED'}",
        f"# Avg bus bandwidth : {mean.get('bandwidth') or mean['bandwidith']}",
    ]
    if any(not line.isprintable() for line in lines):
        raise ValueError("a line break in a name")
    return "".join(f"{line}\n" for line in lines)


def _row(row: dict[str, Any]) -> str:
    values = [row[key] for key in ("size", "count", "type", "redop", "root")]
    for half in (row["out_of_place"], row["in_place"]):
        wrong = half["nwrong"]
        values += [half["time"], half["alg_bw"], half["bus_bw"], "N/A" if wrong is None else wrong]
    return " ".join(word.strip() for word in values)


def print_table(arguments: Sequence[str]) -> int:
    """Print the table, and return the exit status."""
    try:
        # Parse numbers as text to keep all their digits.
        sys.stdout.write(table(json.loads(Path(arguments[0]).read_bytes(), parse_int=str, parse_float=str)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return 1
    return 0


def read_versions(output: str) -> dict[str, str]:
    """Return the versions by program; a program that printed none is missing.

    Source: NCCL prints `NCCL version 2.28.9+cuda13.0` (src/init.cc), where the second part is the CUDA release that it
    was built with. If ranks print different versions, all are returned, joined by commas.
    """
    nccl = list(dict.fromkeys(_NCCL.findall(output)))
    loaded = [_release(library) for _, library in _NUMBERS.findall(output)]
    versions = {
        "NCCL": [version.partition("+cuda")[0] for version in nccl] or loaded,
        "CUDA": [cuda for version in nccl if (cuda := version.partition("+cuda")[2])],
        "nccl-tests": _TESTS.findall(output),
    }
    return {name: ", ".join(dict.fromkeys(values)) for name, values in versions.items() if values}


def loaded_nccl(output: str) -> str:
    """Return a sentence about the NCCL library that ranks loaded; empty if the output does not name it."""
    release = read_versions(output).get("NCCL", "")
    headers = ", ".join(dict.fromkeys(_release(header) for header, _ in _NUMBERS.findall(output)))
    built = f"; nccl-tests was built with {headers}" if headers and headers != release else ""
    return f" The ranks loaded NCCL {release}{built}." if release else ""


def _release(number: str) -> str:
    """Return 2.27.8 for 22708, and 2.7.8 for 2708: the minor release has two digits since 2.9."""
    value = int(number)
    major = value // (10_000 if value >= 10_000 else 1_000)
    return f"{major}.{value // 100 % (100 if value >= 10_000 else 10)}.{value % 100}"


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
        self.names: list[str] = []
        self.starts: list[int] = []  # the columns of both halves
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
            elif fields and self.names and _INTEGER.fullmatch(fields[0]):
                self._read_row(fields)
        except _Unreadable as problem:
            self.problems.append(str(problem))

    def _read_header(self, names: list[str]) -> None:
        if self.names:
            raise _Unreadable("the output has more than one table: the ranks did not run as one program")
        starts = [place for place, name in enumerate(names) if name == "time"]
        if "cputime" in names:
            raise _Unreadable("the table has CPU times (-C), which do not measure bandwidth")
        if len(starts) != 2 or any(names[s + 1 : s + 3] != ["algbw", "busbw"] for s in starts):
            raise _Unreadable(f"the table's header is not one of nccl-tests: {' '.join(names)}")
        if any(names[s + 3 : s + 4] not in (["#wrong"], ["error"]) for s in starts):
            raise _Unreadable(f"the table's header is incomplete or unknown: {' '.join(names)}")
        self.names, self.starts = names, starts

    def _read_row(self, fields: list[str]) -> None:
        width = len(self.names) + self.names.count("timestamp")  # a timestamp is two words, date and time
        if len(fields) != width:
            raise _Unreadable(f"the row of {fields[0]} bytes has {len(fields)} of {width} fields")
        if self.ranks is None:
            raise _Unreadable(f"the row of {fields[0]} bytes cannot be judged: the output names no ranks")
        size, count, kind = int(fields[0]), fields[1], fields[2]
        elements = self.collective.elements(int(count), self.ranks) if _INTEGER.fullmatch(count) else 0
        if size == 0 or elements * _TYPE_BYTES.get(kind, 0) != size:
            raise _Unreadable(f"the row of {size} bytes contradicts itself: {count} elements of type {kind}")
        if any(row.size_bytes == size for row in self.rows):
            raise _Unreadable(f"{size} bytes appear twice in the table")
        halves = [self._timing(fields, start, size, self.ranks) for start in self.starts]
        self.rows.append(Row(size, halves[0], halves[1]))

    def _timing(self, fields: list[str], start: int, size: int, ranks: int) -> Timing:
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
        counted = deviation is not None and self.names[start + 3] == "#wrong"
        wrong = int(deviation) if deviation is not None and counted else None
        return Timing(time.value, exact, exact * factor, wrong, checked=deviation is not None)

    def table(self, hosts: tuple[str, ...], cut: str) -> Table:
        problems = list(self.problems)
        average = None
        if not self.names:
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
