"""A finding (an observation on a node, its severity and a remedy), and what carries findings.

That is a line of a job's output, and the file of root's collector (collect.py); one of another form is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from components.validation.untrusted import data_in, line_of, read

SEVERITIES = ("error", "warning", "info")
WORD = "preflight"
MOST_CHARACTERS = 500
MOST_FINDINGS = 200


class Finding(TypedDict):
    """severity: `error` if jobs fail or are slow, `warning` if they may, `info` for background."""

    severity: str
    check: str
    seen: str
    remedy: str


def finding(severity: str, check: str, seen: str, remedy: str = "") -> Finding:
    """Return a finding with shortened, printable texts."""
    return {"severity": severity, "check": check, "seen": plain(seen), "remedy": plain(remedy)}


def unjudged(check: str, seen: str, remedy: str = "") -> Finding:
    """Return a finding that cannot be judged: it never keeps jobs away."""
    return finding("info", check, f"UNJUDGED: {seen}", remedy)


def at_most_warnings(findings: Iterable[Finding]) -> Iterator[Finding]:
    for item in findings:
        yield {**item, "severity": "warning"} if item["severity"] == "error" else item


def plain(text: str) -> str:
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 3]}..."


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings sorted: errors, warnings, then the rest, otherwise in their order."""
    return sorted(findings, key=lambda item: SEVERITIES.index(item["severity"]))


def line(node: str, findings: Iterable[Finding]) -> str:
    """Return one line of a job's output."""
    return line_of(WORD, node, worst_first(findings)[:MOST_FINDINGS])


def read_lines(output: str) -> dict[str, list[Finding]]:
    """Return findings by node from a job's output, without malformed lines."""
    return {
        node: [finding(item["severity"], item["check"], item["seen"], item["remedy"]) for item in items]
        for node, items in data_in(output, WORD).items()
        if isinstance(items, list) and len(items) <= MOST_FINDINGS and all(map(_is_finding, items))
    }


def _is_finding(item: object) -> bool:
    return (
        isinstance(item, dict)
        and item.keys() == {"severity", "check", "seen", "remedy"}
        and all(isinstance(value, str) and len(value) <= MOST_CHARACTERS for value in item.values())
        and item["severity"] in SEVERITIES
    )


HEALTH = Path("/run/tailrack/health.json")
MOST_BYTES = 8_000_000
# Status of a command that timed out, could not run, or does not exist.
NO_ANSWER = (None, 126, 127)


@dataclass(frozen=True)
class CommandResult:
    """A command's status and output; `status` is None if it gave no answer in time."""

    status: int | None
    output: str


@dataclass(frozen=True)
class Health:
    """All results by command name, and the time of their collection in Unix seconds."""

    time: int
    results: Mapping[str, CommandResult] = field(default_factory=dict)

    def output(self, name: str) -> str:
        """Return the output of a command, whatever its status, which may be a mere warning; empty without an answer."""
        result = self.results.get(name)
        return result.output if result and result.status not in NO_ANSWER else ""


def read_health(text: str) -> Health | None:
    """Return the content of the file; None if it is not of the collector's form. Never raises."""
    try:
        data = json.loads(text)
        return read(Health, {"time": data["time"], "results": data["looks"]})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def health_of(path: Path) -> Health | None:
    """Return the content of the collector's file. Only root's file counts: a user could write any GPU state."""
    try:
        status = path.stat()
        if status.st_uid != 0 or status.st_size > MOST_BYTES:
            return None
        return read_health(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
