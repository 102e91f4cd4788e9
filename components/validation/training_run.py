"""The training benchmark on the head node, as the user: one Slurm job over the nodes, and what it left.

Needs Python 3.10 and nothing else; the program that trains (examples/training/benchmark.py) runs on the nodes.
"""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.validation.groups import NO_GPU, count
from components.validation.slurm_jobs import Limits, Order, Refused, run_jobs, say

REFUSED = 3  # exit status: Slurm did not take the job


def members(nodes: Sequence[str], gpus: Mapping[str, str]) -> tuple[tuple[str, ...], int]:
    """Return the nodes that train and ranks a node: those with GPUs, each with as many as the least has; else all."""
    having = tuple(node for node in nodes if gpus.get(node))
    return (having, min(count(gpus[node]) for node in having)) if having else (tuple(nodes), 1)


def order(plan: Mapping[str, Any], jobs: Mapping[str, Any], nodes: Sequence[str], folder: Path) -> Order:
    """Return the job over these nodes."""
    chosen, each = members(nodes, plan["gpus"])
    on_gpus = any(plan["gpus"].get(node) for node in chosen)
    options = [f"--ntasks={len(chosen) * each}", f"--ntasks-per-node={each}", f"--switches={_sites(plan, chosen)}"]
    options += [f"--gpus-per-node={each}"] if on_gpus else []
    return Order(folder, chosen, {**jobs["cpu_files"], "job.sh": jobs["cpu_job"]}, options, reads=["beside.*"])


def _sites(plan: Mapping[str, Any], nodes: Sequence[str]) -> int:
    return len({plan["sites"][node] for node in nodes})


def main(told: Mapping[str, Any]) -> int:
    """Train, print the report, return the exit status.

    told   `plan`, `jobs` (the job and its files), `nodes` that take part, and `absent`: why others do not
    """
    # Ended in the middle, it takes its job with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan, nodes = told["plan"], told["nodes"]
    job = order(plan, told["jobs"], nodes, Path.home() / ".tailrack" / "validation" / plan["scope"])
    try:
        (report,) = run_jobs([job], Limits(plan["start_seconds"], plan["run_seconds"]))
    except Refused as refused:
        say(str(refused))
        return REFUSED
    files = report.pop("files")
    report["beside"] = [files[name] for name in sorted(files)]
    asked = {"nodes": len(job.nodes), "ranks": len(job.nodes) * members(nodes, plan["gpus"])[1]}
    asked |= {"on_gpus": any(plan["gpus"].get(node) for node in job.nodes), "spans": _sites(plan, job.nodes) > 1}
    absent = {**told["absent"], **{node: NO_GPU for node in nodes if node not in job.nodes}}
    sys.stdout.write(json.dumps({**report, "asked": asked, "absent": absent}) + "\n")
    return 0
