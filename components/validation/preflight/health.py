"""What the root-owned collector wrote (collect.py), read. What is no file of that form is no look at all."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

MOST_BYTES = 8_000_000
# Of a look: not in time, not to be run, not there.
NO_ANSWER = (None, 126, 127)


@dataclass(frozen=True)
class Look:
    """A command's status and output; `status` is None where it gave no answer in time."""

    status: int | None
    output: str


@dataclass(frozen=True)
class Health:
    """All looks by name, and when they were made, in seconds since 1970."""

    time: int
    looks: dict[str, Look] = field(default_factory=dict)

    def output(self, name: str) -> str:
        """What a command printed, whatever its status: that may be a warning's. Empty where there was no answer."""
        look = self.looks.get(name)
        return look.output if look and look.status not in NO_ANSWER else ""


def read_health(text: str) -> Health | None:
    """Return what the text holds, None where it is not of the collector's form. Never raises."""
    try:
        whole = json.loads(text)
        return Health(
            int(whole["time"]),
            {
                str(name): Look(None if look["status"] is None else int(look["status"]), str(look["output"]))
                for name, look in whole["looks"].items()
            },
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def health_of(path: Path) -> Health | None:
    """Return what the collector wrote. Only root may have written it: a user could say anything of a GPU."""
    try:
        about = path.stat()
        if about.st_uid != 0 or about.st_size > MOST_BYTES:
            return None
        return read_health(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
