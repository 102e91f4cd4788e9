"""Read the file of root's collector (collect.py). A file of another form is ignored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from components.validation.untrusted import read

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
