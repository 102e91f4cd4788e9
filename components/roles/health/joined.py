"""What a node gave by itself when it joined: in what the measurements of `up` have kept on the head node."""

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

KEPT = Path("/var/lib/tailrack/validation")
# What has to be the same for two figures to be comparable.
_ALIKE = ("backend", "collective", "gate_bytes")


def with_figure(record: Record, node: Node, kept: Path = KEPT) -> Record:
    """Return the record with the oldest figure of this machine, measured in the same way, if there is one."""
    if record.forgotten:
        return record
    found = sorted(_figures(record, node, kept))
    return replace(record, reference=found[0][1], since=JOINED) if found else record


def _figures(record: Record, node: Node, kept: Path) -> Iterator[tuple[float, float]]:
    """Moment and GB/s."""
    for path in sorted(kept.glob("*.json")):
        told = load(path)
        if not isinstance(told, Mapping) or told.get("members", {}).get(node.name) != node.address:
            continue
        for entry in told.get("alone", ()):
            figure = _figure(entry, told, node, record)
            if figure is not None:
                yield float(told.get("measured_at") or 0), figure


def _figure(entry: Mapping[str, Any], told: Mapping[str, Any], node: Node, record: Record) -> float | None:
    """A user's words, which may be anything: nothing of what is no measurement."""
    try:
        asked = record.of["asked"]
        if entry["gpus"] != {node.name: node.gpus} or any(entry["asked"][key] != asked[key] for key in _ALIKE):
            return None
        there = read_fabric_facts(str(told.get("there", "")))
        result = judge_group(entry, there, None, Conditions(None, None, "", spans=False))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    found = measured(result, (), on_gpus=True)
    return None if found.broken else found.gb_per_s
