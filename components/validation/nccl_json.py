"""What nccl-tests has written as JSON (`-J`, since 2.17.3), printed as its own table with every digit that it knows.

Usage: python3 nccl_json.py FILE, where rank 0 has run. The file has the program's whole environment in it, secrets too:
nothing of it goes any further but what a table has, and nccl_tests.py reads that as any other one.
Exits 1, and prints nothing, for what is not whole: a program that was ended leaves half a file.

Source: src/util.cu of nccl-tests, versions 1 to 3 of the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TITLES = "# size count type redop root" + 2 * " time algbw busbw #wrong"


def table(told: dict[str, Any]) -> str:
    """The table. KeyError, TypeError or ValueError where the file says less than one has."""
    config = told["config"]
    if (config["nthreads"], config["ngpus"]) != ("1", "1"):
        raise ValueError("of the GPUs of a process only the first is in the file")
    found = told["out_of_bounds"]["count"]
    # 2.17 spelt it otherwise.
    mean = told.get("average_bus_bandwidth") or told["average_bus_bandwidith"]
    lines = [
        f"# Collective test starting: {Path(told['args'][0]).name}",
        *(f"# Rank {one['rank']} Pid {one['pid']} on {one['hostname']}" for one in config["devices"]),
        TITLES,
        *(_row(row) for row in told["results"]),
        f"# Out of bounds values : {found} {'OK' if found == '0' else 'FAILED'}",
        f"# Avg bus bandwidth : {mean.get('bandwidth') or mean['bandwidith']}",
    ]
    if any(not line.isprintable() for line in lines):
        raise ValueError("a line break in a name")
    return "".join(f"{line}\n" for line in lines)


def _row(row: dict[str, Any]) -> str:
    words = [row[key] for key in ("size", "count", "type", "redop", "root")]
    for half in (row["out_of_place"], row["in_place"]):
        wrong = half["nwrong"]
        words += [half["time"], half["alg_bw"], half["bus_bw"], "N/A" if wrong is None else wrong]
    return " ".join(word.strip() for word in words)


def main(path: Path) -> int:
    """Print the table of a file; the exit status."""
    try:
        # As text, so that each number has the digits that it came with.
        sys.stdout.write(table(json.loads(path.read_bytes(), parse_int=str, parse_float=str)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
