"""The single-node figure of a node from when it joined, read from the reports of `up` that the head node keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.validation.became_slow import JOINED, Record, measured
from components.validation.fabric_facts import read_fabric_facts
from components.validation.preflight.node_checks import load
from components.validation.results import Conditions, judge_group
from components.validation.slurm_nodes import Node

REPORTS = Path("/var/lib/tailrack/validation")
# The address of each node as it joined (components/roles/names/host.py).
MEMBERS = Path("/var/lib/tailrack/members")
# Settings that must be the same for two figures to be comparable.
_SAME = ("backend", "collective", "gate_bytes")


def address_of(name: str, members: Path = MEMBERS) -> str:
    """Return a node's tailnet address, which identifies the machine; empty if it is unknown."""
    try:
        return (members / name / "address").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def with_figure(record: Record, node: Node, reports: Path = REPORTS) -> Record:
    """Return the record with this machine's oldest comparable figure as its reference, if there is one."""
    if record.forgotten:
        return record
    figures = sorted(_figures(record, node, reports))
    return replace(record, reference=figures[0][1], since=JOINED) if figures else record


def _figures(record: Record, node: Node, reports: Path) -> Iterator[tuple[float, float]]:
    """Yield the time and the GB/s of each figure."""
    for path in sorted(reports.glob("*.json")):
        report = load(path)
        if not isinstance(report, Mapping) or report.get("members", {}).get(node.name) != record.of.get("address"):
            continue
        for entry in report.get("alone", ()):
            figure = _figure(entry, report, node, record)
            if figure is not None:
                yield float(report.get("measured_at") or 0), figure


def _figure(entry: Mapping[str, Any], report: Mapping[str, Any], node: Node, record: Record) -> float | None:
    """Return the GB/s of one entry, or None. A user's process wrote it, so it may contain anything."""
    try:
        settings = record.of["asked"]
        if entry["gpus"] != {node.name: node.gpus} or any(entry["asked"][key] != settings[key] for key in _SAME):
            return None
        facts = read_fabric_facts(str(report.get("there", "")))
        result = judge_group(entry, facts, None, Conditions(None, None, "", spans=False))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    figure = measured(result, (), on_gpus=True)
    return None if figure.broken else figure.gb_per_s
