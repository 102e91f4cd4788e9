"""Run the training benchmark from the head node as a user: one Slurm job over the nodes.

Reads a task from stdin (JSON): the `plan` (measurement/training.py), the `nodes` that take part, the reasons for
`absent` nodes, and `cpu_job`, the text for sbatch. Needs only Python 3.10; the training program
(examples/training/benchmark.py) runs on the nodes.
"""

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.validation.groups import NO_GPU, count
from components.validation.job_files import training_files
from components.validation.job_outputs import with_tables
from components.validation.slurm_jobs import Limits, Order, Refused, run_jobs, say
from components.validation.training_verdict import judge_training

REFUSED = 3  # exit status: Slurm did not take the job


def members(nodes: Sequence[str], gpus: Mapping[str, str]) -> tuple[tuple[str, ...], int]:
    """Return the nodes that train and the ranks per node: nodes with GPUs, as many as the smallest has, else all."""
    gpu_nodes = tuple(node for node in nodes if gpus.get(node))
    return (gpu_nodes, min(count(gpus[node]) for node in gpu_nodes)) if gpu_nodes else (tuple(nodes), 1)


def order(plan: Mapping[str, Any], job: str, nodes: Sequence[str], folder: Path) -> Order:
    """Return the job. `job`: the text for sbatch."""
    chosen, per_node = members(nodes, plan["gpus"])
    on_gpus = any(plan["gpus"].get(node) for node in chosen)
    options = [
        f"--ntasks={len(chosen) * per_node}",
        f"--ntasks-per-node={per_node}",
        f"--switches={_sites(plan, chosen)}",
    ]
    options += [f"--gpus-per-node={per_node}"] if on_gpus else []
    return Order(folder, chosen, {**training_files(), "job.sh": job}, options, reads=["beside.*", "log.*"])


def _sites(plan: Mapping[str, Any], nodes: Sequence[str]) -> int:
    return len({plan["sites"][node] for node in nodes})


def _run(job: Order, limits: Limits, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run the job; return its report for judge_training."""
    (report,) = run_jobs([job], limits)
    return {**with_tables(report, "all_reduce"), "asked": settings}


def main(_: Sequence[str]) -> int:
    """Train, print the report, return the exit status."""
    task = json.load(sys.stdin)
    # If it is terminated, it cancels its job.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan, nodes = task["plan"], task["nodes"]
    job = order(plan, task["cpu_job"], nodes, Path.home() / ".tailrack" / "validation" / plan["scope"])
    settings = {"nodes": len(job.nodes), "ranks": len(job.nodes) * members(nodes, plan["gpus"])[1]}
    settings |= {"on_gpus": any(plan["gpus"].get(node) for node in job.nodes), "spans": _sites(plan, job.nodes) > 1}
    limits, begin = Limits(plan["start_seconds"], plan["run_seconds"]), time.monotonic()
    try:
        report = _run(job, limits, settings)
        result = judge_training(report, None)
        left = limits.start + limits.run - 1.2 * (time.monotonic() - begin)
        if result["verdict"] == "UNSTABLE" and result["spread"] and time.monotonic() - begin < left:
            say("repeating the measurement because runs differ")
            report = {**_run(job, replace(limits, run=left), settings), "first_runs": result["spread"]["runs"]}
    except Refused as refused:
        say(str(refused))
        return REFUSED
    absent = {**task["absent"], **report.get("absent", {}), **{node: NO_GPU for node in nodes if node not in job.nodes}}
    sys.stdout.write(json.dumps({**report, "absent": absent}) + "\n")
    return 0
