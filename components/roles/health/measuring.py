"""Measure a single node: run a program as the submitting user, and judge the report that it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from components.node.pack import ROOT
from components.validation.became_slow import Measured, measured
from components.validation.groups import count
from components.validation.model import Measurement
from components.validation.preflight.findings import read_lines
from components.validation.results import Conditions, judge_scope
from components.validation.slurm_nodes import Node
from components.validation.submitter import run_as_submitter

Settings = Mapping[str, Any]
# Added to the time limits of a node's jobs.
SPARE_SECONDS = 120


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

    each_gpu   whether to measure each GPU too, and to run dcgmi (components/validation/gpu_speed/main.py)
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
