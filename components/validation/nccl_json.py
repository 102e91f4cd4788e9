"""Print the JSON output of nccl-tests (`-J`, since 2.17.3) as its table, with all digits.

Usage: python3 tailrack.pyz nccl-table FILE, where rank 0 has run. The file contains the whole environment, including
secrets: only the table is printed. Exits with 1 and prints nothing if the file is incomplete, as after a killed
program.

Source: src/util.cu of nccl-tests, versions 1 to 3 of the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TITLES = "# size count type redop root" + 2 * " time algbw busbw #wrong"


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


def main(arguments: Sequence[str]) -> int:
    """Print the table, and return the exit status."""
    try:
        # Parse numbers as text to keep all their digits.
        sys.stdout.write(table(json.loads(Path(arguments[0]).read_bytes(), parse_int=str, parse_float=str)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return 1
    return 0
