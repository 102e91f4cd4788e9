"""Run the training benchmark and the storage measurement from the head node as a user: one Slurm job over the nodes.

slurm_jobs.py has the form of the task. Needs only Python 3.10.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from components.validation.figures import with_tables
from components.validation.groups import NO_GPU, count
from components.validation.job_files import training_files
from components.validation.slurm_jobs import Limits, Order, answer, limits_of, run_jobs, say
from components.validation.storage_job import FIGURES_FILE, PLAN
from components.validation.this_node import remove
from components.validation.training_verdict import judge_training


def _storage(task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    try:
        (report,) = run_jobs([storage_order(task["plan"], task["nodes"], folder)], limits_of(task))
    finally:
        remove(folder / "data")  # a killed job leaves its files on the share
    files = report.pop("files")
    return {**report, "output": "".join([*files.values(), report["output"]])}


def storage_order(plan: Mapping[str, Any], nodes: Sequence[str], folder: Path) -> Order:
    """Return the job."""
    in_job = {"targets": plan["targets"], "nodes": list(nodes), "step_seconds": plan["step_seconds"]}
    files = {"job.sh": plan["job"], PLAN: json.dumps(in_job)}
    return Order(folder, tuple(nodes), files, _options(plan, nodes), reads=[f"{FIGURES_FILE}.*"])


def _training(task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    plan, nodes = task["plan"], task["nodes"]
    gpu_nodes = [node for node in nodes if plan["gpus"].get(node)]
    # One rank per GPU of the nodes with GPUs, as many as the smallest has; without any, one per node.
    chosen, per_node = gpu_nodes or nodes, min((count(plan["gpus"][node]) for node in gpu_nodes), default=1)
    options = [*_options(plan, chosen, per_node), *([f"--gpus-per-node={per_node}"] if gpu_nodes else [])]
    files = {**training_files(), "job.sh": plan["job"]}
    order = Order(folder, tuple(chosen), files, options, reads=["beside.*", "log.*"])
    settings = {"nodes": len(chosen), "ranks": len(chosen) * per_node, "on_gpus": bool(gpu_nodes)}
    settings["spans"] = len({plan["sites"][node] for node in chosen}) > 1

    def run(limits: Limits) -> dict[str, Any]:
        (report,) = run_jobs([order], limits)
        return {**with_tables(report), "asked": settings}

    limits, begin = limits_of(task), time.monotonic()
    report = run(limits)
    result = judge_training(report, None)
    left = limits.start + limits.run - 1.2 * (time.monotonic() - begin)
    if result["verdict"] == "UNSTABLE" and result["spread"] and time.monotonic() - begin < left:
        say("repeating the measurement because runs differ")
        report = {**run(replace(limits, run=left)), "first_runs": result["spread"]["runs"]}
    without_gpus = {node: NO_GPU for node in nodes if node not in chosen}
    return {**report, "absent": {**report.get("absent", {}), **without_gpus}}


def _options(plan: Mapping[str, Any], nodes: Sequence[str], per_node: int = 1) -> list[str]:
    sites = len({plan["sites"][node] for node in nodes})
    return [f"--ntasks={len(nodes) * per_node}", f"--ntasks-per-node={per_node}", f"--switches={sites}"]


# Commands: they measure, print the report and return the exit status.
measure_storage, measure_training = partial(answer, _storage), partial(answer, _training)
