"""`tailrack elastic POOL`: show an elastic pool's placeholders. `make elastic` changes their states with it."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from components.node import files
from components.roles.slurm.elastic_state import FOLDER, STATUS, placeholder_names
from components.roles.tailrack_command import slurm
from components.roles.tailrack_command.elastic_status import read_status
from components.roles.tailrack_command.slurm import SlurmError
from components.validation.preflight.drain import SICK_PREFIXES
from components.validation.preflight.findings import plain
from components.validation.slurm_nodes import Node

NAME, HELP = "elastic", "show the machines of an elastic pool and what `make elastic` is doing"
_POOL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_GONE = {"POWERED_DOWN", "POWERING_DOWN"}


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
    return f"{FOLDER}/{pool}/{STATUS}"
