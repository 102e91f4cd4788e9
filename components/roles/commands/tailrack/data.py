"""`tailrack data`: show the data sets, and which nodes have their copies."""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.node.waiting import within
from components.roles.storage.datasets.model import COMPLETE, COPIES, REPORT, WAITS, size_text
from components.slurm_commands.slurm import SlurmError
from components.validation.preflight.findings import plain

NAME, HELP = "data", "show the data sets, and which nodes have their copies"
_PAUSE = 2
_CLEAR = "\x1b[H\x1b[2J"
# Seconds after which the head node's program should have written the report again.
_OLD = 1800


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--watch", action="store_true", help="print again whenever something changes, until all is copied"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these data sets")


def run(arguments: argparse.Namespace) -> int:
    """Print the data sets. The exit status is 1 if one of them has an error."""
    last = ""
    while True:
        report = read_report()
        sets = chosen(report["sets"], arguments.names)
        text = json.dumps({"sets": sets}, indent=2) if arguments.json else as_text(sets, report["time"], time.time())
        if text != last:
            screen = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
            sys.stdout.write(f"{_CLEAR if arguments.watch and screen else ''}{text}\n")
            sys.stdout.flush()
        last = text
        if not arguments.watch or all(is_done(one) for one in sets):
            return int(any(one["error"] or any(row["error"] for row in one["nodes"]) for one in sets))
        time.sleep(_PAUSE)


def read_report() -> Mapping[str, Any]:
    """Return the head node's report."""
    try:
        report: Mapping[str, Any] = json.loads(Path(REPORT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SlurmError(
            "there are no data sets here: run it on the head node of a cluster with tailrack:datasets"
        ) from None
    return report


def chosen(sets: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return the named data sets; all without names. Raises SlurmError for an unknown name."""
    if unknown := set(names) - {one["name"] for one in sets}:
        raise SlurmError(f"there is no data set {', '.join(sorted(unknown))}; 'tailrack data' shows all")
    return [one for one in sets if not names or one["name"] in names]


def is_done(one: Mapping[str, Any]) -> bool:
    """Return whether all nodes have the data set."""
    return bool(one["version"]) and all(row["state"] == COMPLETE for row in one["nodes"])


def as_text(sets: Sequence[Mapping[str, Any]], written: int, now: float) -> str:
    """Return one line per data set; below it the nodes that lack it, and errors with the next command."""
    rows = [("NAME", "VERSION", "SIZE", "FILES", "NODES", "FOLDER", "SOURCE")]
    for one in sets:
        done = sum(row["state"] == COMPLETE for row in one["nodes"])
        known = bool(one["version"])
        rows.append(
            (
                one["name"],
                one["version"] or "-",
                size_text(one["bytes"]) if known else "-",
                f"{one['files']:,}" if known else "-",
                f"{done}/{len(one['nodes'])}",
                one["folder"],
                one["source"],
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for number, row in enumerate(rows):
        lines.append("  ".join(f"{plain(cell):{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
        if number:
            lines += [f"    {plain(line)}" for line in _details(sets[number - 1])]
    if not within(_OLD, written, now):
        lines.append(f"this is {int(now - written) // 60} min old; next: see 'journalctl -u tailrack-data-head'")
    return "\n".join(lines if sets else ["there are no such data sets"])


def _details(one: Mapping[str, Any]) -> list[str]:
    lines = [f"source: {one['error']}"] if one["error"] else []
    for row in one["nodes"]:
        if row["state"] != COMPLETE and one["version"]:
            lines.append(f"{row['node']}: {_state(row)}")
    return lines


def _state(row: Mapping[str, Any]) -> str:
    if not row["answers"]:
        return "does not answer"
    if row["error"]:
        return str(row["error"])
    between = {WAITS: "for", COPIES: "from"}.get(row["state"])
    return f"{row['state']} {between} {row['source']}" if between and row["source"] else str(row["state"])
