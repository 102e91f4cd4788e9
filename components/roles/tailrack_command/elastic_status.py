"""Say what jobs and placeholders of elastic pools wait for, from what `make elastic` last reported.

Pure except `read_statuses`. The report is data of another program: every text is shown as one plain line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.node.waiting import within
from components.roles.slurm.elastic_state import FOLDER, STATUS
from components.validation.preflight.findings import plain
from components.validation.slurm_nodes import Node

# `make elastic` reports every few seconds. After this time without a report it does not run.
SILENT_SECONDS = 180
# The reasons of placeholders that got no machine begin with this.
NO_MACHINE = "tailrack: no machine: "


@dataclass(frozen=True)
class Status:
    """The report of `make elastic` on a pool.

    stack    the pool's stack; nodes: its placeholders
    seen     Unix seconds of the report
    limit    the limit of machines at once, as text
    renting  since when each machine is being rented, by node
    places   where each machine is rented, by node
    failed   attempts that brought no machine, by node: count, Unix seconds of the next one, cause
    replaced   Unix seconds of the last replacement of a sick machine
    """

    stack: str
    nodes: Sequence[str]
    seen: float
    limit: str = ""
    renting: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, tuple[int, float, str]] = field(default_factory=dict)
    replaced: float = 0

    def to_plain(self) -> dict[str, Any]:
        """Return it in the form of the file; `seen` is the file's own."""
        return {
            "stack": self.stack,
            "nodes": list(self.nodes),
            "limit": self.limit,
            "renting": dict(self.renting),
            "places": dict(self.places),
            "failed": {name: list(values) for name, values in self.failed.items()},
            **({"replaced": self.replaced} if self.replaced else {}),
        }


def read_status(text: str, seen: float) -> Status | None:
    """Read a report; None if it is malformed."""
    try:
        data = json.loads(text)
        return Status(
            plain(str(data["stack"])),
            [str(name) for name in data["nodes"]],
            seen,
            plain(str(data["limit"])),
            {str(name): float(since) for name, since in data["renting"].items()},
            {str(name): plain(str(place)) for name, place in data["places"].items()},
            {
                str(name): (int(count), float(until), plain(str(why)))
                for name, (count, until, why) in data["failed"].items()
            },
            float(data.get("replaced", 0)),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def read_statuses(folder: str = FOLDER) -> list[Status]:
    """Return the reports of all elastic pools; none without such pools."""
    statuses = []
    for file in sorted(Path(folder).glob(f"*/{STATUS}")):
        try:
            status = read_status(file.read_text(encoding="utf-8"), file.stat().st_mtime)
        except OSError:
            continue
        if status is not None:
            statuses.append(status)
    return statuses


def renting(names: Sequence[str], statuses: Sequence[Status], now: float) -> list[str]:
    """Return sentences on the machines that a job with these nodes waits for; none if it waits for no machine."""
    return [sentence for status in statuses for sentence in _renting(set(names), status, now)]


def _renting(names: set[str], status: Status, now: float) -> Iterator[str]:
    own = [name for name in status.nodes if name in names]
    if not own:
        return
    awaited = [name for name in own if name in status.renting]
    if not within(SILENT_SECONDS, status.seen, now):
        yield (
            f"No one rents machines for pool {status.stack}: `make elastic STACK={status.stack}` last ran "
            f"{_ago(now - status.seen)} ago."
        )
    elif awaited:
        places = " and ".join(dict.fromkeys(status.places.get(name, "") for name in awaited))
        since = min(status.renting[name] for name in awaited)
        yield (
            f"It waits for its machines: renting {len(awaited)} of {len(own)} at {places}, pool {status.stack} "
            f"({', '.join(awaited)}), for {_ago(now - since)}."
        )
    else:
        yield f"It waits for its machines of pool {status.stack} ({', '.join(own)}), which are asked for."


def at_limit(nodes: Sequence[Node], statuses: Sequence[Status]) -> list[str]:
    """Return a sentence for each pool that may rent no more machines."""
    free = {node.name for node in nodes if node.unrented}
    return [
        f"Pool {status.stack} rents {status.limit}, and all of them are in use or out."
        for status in statuses
        if status.nodes and not free.intersection(status.nodes)
    ]


def no_machine(why: str, until: float) -> str:
    """Return the reason in Slurm of a placeholder that got no machine."""
    again = time.strftime("%Y-%m-%d %H:%M", time.gmtime(until))
    return f"{NO_MACHINE}{plain(why)[:200]}; next attempt after {again} UTC"


def _ago(seconds: float) -> str:
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{max(0, int(seconds))} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"
