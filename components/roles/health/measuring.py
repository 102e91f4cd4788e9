"""Figures of single nodes: measure one as the submitting user, and find the one from when it joined."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.node.pack import ROOT
from components.slurm.nodes import Node
from components.validation.became_slow import JOINED, Measured, Record, measured
from components.validation.fabric_facts import read_fabric_facts
from components.validation.groups import count
from components.validation.model import Measurement
from components.validation.preflight.findings import read_lines
from components.validation.preflight.node_checks import load
from components.validation.results import Conditions, judge_group, judge_scope
from components.validation.slurm_jobs import run_as_submitter

Settings = Mapping[str, Any]
# Added to the time limits of a node's jobs.
SPARE_SECONDS = 120
REPORTS = Path("/var/lib/tailrack/validation")
# The address of each node as it joined (components/roles/names/host.py).
MEMBERS = Path("/var/lib/tailrack/members")
# Settings that must be the same for two figures to be comparable.
_SAME = ("backend", "collective", "gate_bytes")


def measurement_settings(settings: Settings, node: Node) -> Mapping[str, Any]:
    """Return the settings of the measurement that fits a node's hardware."""
    plan = settings["plan"]
    chosen: Mapping[str, Any] = plan["nccl"] if _gpus(settings, node) > 1 else plan["cpu"]
    return chosen


def limit_seconds(settings: Settings) -> int:
    """Return how long all jobs of a node may take together."""
    return int(settings["plan"]["measurement_seconds"]) + SPARE_SECONDS


def _gpus(settings: Settings, node: Node) -> int:
    """Return how many of a node's GPUs are measured; 0 for mixed kinds, which one figure cannot describe."""
    return 0 if "," in node.gpus else count(node.gpus, settings["plan"]["nccl"]["most_gpus"])


def program_input(settings: Settings, node: Node, *, each_gpu: bool) -> dict[str, Any]:
    """Return the input of the user's program (components/validation/measurement_run.py).

    each_gpu   whether to measure each GPU too, and to run dcgmi (components/validation/gpu_speed/node.py)
    """
    each_gpu = each_gpu and bool(node.gpus)
    plan = dict(settings["plan"])
    level = settings["dcgm_level"] if each_gpu else 0
    alone = {"address": "", "site": "", "gpus": node.gpus}
    # The job needs 30 s for everything else.
    about = {"fabric": {}, "dcgm_level": level, "dcgm_seconds": settings["minutes"] * 60 - 30}
    plan |= {
        "scope": f"deep-check-{node.name}",
        "sites": {node.name: ""},
        "about": {**about, "nodes": {node.name: alone}},
    }
    plan |= {"gpus": {node.name: node.gpus}, "preflight": "gpu-check" if each_gpu else ""}
    if _gpus(settings, node) < 2:
        plan |= {"nccl": None, "gpus": {node.name: node.gpus if _gpus(settings, node) else ""}}
    return {"plan": plan, "nodes": [node.name], "absent": {}, "cpu_job": plan["cpu_job"]}


def measure_as_user(settings: Settings, node: Node, reservation: str, each_gpu: bool) -> Mapping[str, Any] | None:
    """Measure a node and return the report of the user's program; None if it printed no valid report."""
    ended = run_as_submitter(
        settings["user"],
        # `up` measures with the same command.
        *("/usr/bin/python3", "-I", "-S", str(ROOT), "measure"),
        task=program_input(settings, node, each_gpu=each_gpu),
        limit=limit_seconds(settings),
        **({"SBATCH_RESERVATION": reservation} if reservation else {}),
    )
    try:
        report = json.loads(ended.output)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and ended.ok else None


def read_report(settings: Settings, node: Node, report: Mapping[str, Any] | None) -> Measured:
    """Judge a report. A user's process printed it, so it may contain anything."""
    if report is None:
        return Measured(None, doubt="the measurement ended early, see the messages above")
    gpus, parameters = _gpus(settings, node), dict(measurement_settings(settings, node))
    for key in ("socket_max_bytes", "most_gpus", "mpi"):
        parameters.pop(key, None)
    measurement = Measurement(**{"ranks": max(2, gpus), "nodes": 1, **parameters})
    # The config's floor for single nodes applies to GPUs only.
    floor = settings["floor"] if gpus > 1 else None
    result, _ = judge_scope(measurement, report, Conditions(floor, floor, "", spans=False), read_lines)
    return measured(result, result["preflight"].get(node.name, ()), on_gpus=gpus > 1)


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
