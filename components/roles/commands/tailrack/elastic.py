"""`tailrack elastic POOL`: show an elastic pool's placeholders. `make elastic` changes their states with it.

Its last report says for which machines jobs and placeholders wait. The report is data of another program: every text is
shown as one plain line.
"""

import argparse
import json
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from components.node import files
from components.node.waiting import within
from components.roles.slurm.slurm.folders import ELASTIC, ELASTIC_STATUS, placeholder_names
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node
from components.slurm_commands.slurm import SlurmError
from components.validation.preflight.drain import SICK_PREFIXES
from components.validation.preflight.findings import plain
from components.validation.untrusted import read

# `make elastic` reports every few seconds. After this time without a report it does not run.
SILENT_SECONDS = 180
# The reasons of placeholders that got no machine begin with this.
NO_MACHINE = "tailrack: no machine: "
NAME, HELP = "elastic", "show the machines of an elastic pool and what `make elastic` is doing"
_POOL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_GONE = {"POWERED_DOWN", "POWERING_DOWN"}


class Attempts(NamedTuple):
    """Attempts in a row that brought no machine: how many, Unix seconds of the next one, and the last cause."""

    times: int
    until: float
    why: str


@dataclass(frozen=True)
class Status:
    """The report of `make elastic` on a pool.

    stack    the pool's stack; nodes: its placeholders
    seen     Unix seconds of the report, from the file's time
    limit    the limit of machines at once, as text
    renting  since when each machine is being rented, by node
    places   where each machine is rented, by node
    failed   attempts that brought no machine, by node
    replaced   Unix seconds of the last replacement of a sick machine
    """

    stack: str
    nodes: Sequence[str]
    seen: float
    limit: str = ""
    renting: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, Attempts] = field(default_factory=dict)
    replaced: float = 0


def read_status(text: str, seen: float) -> Status | None:
    """Read a report; None if it is malformed."""
    try:
        status = read(Status, {**json.loads(text), "seen": seen})
    except (ValueError, TypeError):
        return None
    places = {name: plain(place) for name, place in status.places.items()}
    failed = {name: attempts._replace(why=plain(attempts.why)) for name, attempts in status.failed.items()}
    return replace(status, stack=plain(status.stack), limit=plain(status.limit), places=places, failed=failed)


def read_statuses(folder: str = ELASTIC) -> list[Status]:
    """Return the reports of all elastic pools; none without such pools."""
    statuses = []
    for file in sorted(Path(folder).glob(f"*/{ELASTIC_STATUS}")):
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


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--apply", default="", metavar="JSON", help="change states first, and record a report (root)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("pool", metavar="POOL", help="organization.project.stack")


def run(arguments: argparse.Namespace) -> int:
    """Print the pool's placeholders and the last report."""
    if not _POOL.fullmatch(arguments.pool) or not (names := placeholder_names(arguments.pool)):
        raise SlurmError(f"there is no elastic pool {arguments.pool!r} here; run the pool's up first")
    if arguments.apply:
        if os.geteuid() != 0:
            raise SlurmError("only root can change states: sudo tailrack elastic ...")
        apply(arguments.pool, names, read_changes(arguments.apply))
    nodes = slurm.nodes(*names)
    report = files.read(_file(arguments.pool)) or ""
    if arguments.json:
        rows = [
            {"name": node.name, "flags": sorted(node.flags), "reason": node.reason, "by": node.by, "since": node.since}
            for node in nodes
        ]
        status = json.loads(report) if read_status(report, 0) else None
        print(json.dumps({"nodes": rows, "status": status, "now": int(time.time())}))
    else:
        print("\n".join(f"{node.name}  {node.state}{_reason(node)}" for node in nodes))
    return 0


def _reason(node: Node) -> str:
    return f": {plain(node.reason)}" if node.out and node.reason else ""


def read_changes(text: str) -> Mapping[str, Any]:
    """Return the changes: `{"down": {node: reason}, "resume": [node], ..., "status": {...}}`. Raise SlurmError."""
    try:
        changes = json.loads(text)
        return {
            "down": {str(name): plain(str(reason)) for name, reason in changes.get("down", {}).items()},
            "resume": [str(name) for name in changes.get("resume", ())],
            "power_up": [str(name) for name in changes.get("power_up", ())],
            "replace": [str(name) for name in changes.get("replace", ())],
            "status": changes.get("status"),
        }
    except (ValueError, TypeError, AttributeError):
        raise SlurmError("--apply takes a JSON object with the states of nodes") from None


def apply(pool: str, names: Collection[str], changes: Mapping[str, Any]) -> None:
    """Change the states of placeholders, and record the report."""
    nodes = slurm.nodes(*names)
    states = {node.name: node.flags for node in nodes}
    for name, reason in changes["down"].items():
        if name in states:
            slurm.scontrol("update", f"nodename={name}", "state=down", f"reason={reason}")
            # Force it only once: slurmctld would repeat the request later.
            if not states[name] & _GONE:
                slurm.scontrol("update", f"nodename={name}", "state=power_down_force", f"reason={reason}")
    _update(changes["resume"], states, "resume")
    _update(changes["power_up"], states, "power_up")
    # A person may have drained or resumed it meanwhile. `asap` waits for a job that has started since.
    sick = {node.name: node.flags for node in nodes if "DRAIN" in node.flags and node.reason.startswith(SICK_PREFIXES)}
    _update(changes["replace"], sick, "power_down_asap")
    if changes["status"] is not None:
        text = json.dumps(changes["status"])
        if read_status(text, 0) is None:
            raise SlurmError("--apply has a malformed status")
        # Its time says when `make elastic` last ran, so it is written even if nothing changed.
        files.remove(_file(pool))
        files.write(_file(pool), text)


def _update(wanted: Sequence[str], states: Mapping[str, Collection[str]], state: str) -> None:
    for name in wanted:
        if name in states:
            slurm.scontrol("update", f"nodename={name}", f"state={state}")


def _file(pool: str) -> str:
    return f"{ELASTIC}/{pool}/{ELASTIC_STATUS}"
