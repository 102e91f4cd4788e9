"""Read what NCCL and nccl-tests print: log lines, results in JSON, and versions.

Source of log lines: `ncclDebugLog` in NCCL's src/debug.cc. A line is `[time] host:pid:tid [device] NCCL INFO message`;
the time is optional. nccl-tests prints a row in three pieces, so a log line may start inside a row.

`python3 tailrack.pyz nccl-table FILE`, where rank 0 has run, prints the JSON output of nccl-tests (`-J`, since 2.17.3)
as its table, with all digits. The file contains the whole environment, including secrets: only the table is printed.
Exits with 1 and prints nothing if the file is incomplete, as after a killed program. Source: src/util.cu of nccl-tests,
versions 1 to 3 of the file.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
