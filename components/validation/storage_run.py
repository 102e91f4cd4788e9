"""Run the storage measurement from the head node as a user: one Slurm job over the nodes.

Reads a task from stdin (JSON): the `plan` (measurement/storage.py), the `nodes` that take part, the reasons for
`absent` nodes, and `cpu_job`, the text for sbatch. Needs only Python 3.10.
"""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.validation.slurm_jobs import Limits, Order, Refused, run_jobs, say
from components.validation.storage_job import FIGURES_FILE, PLAN
from components.validation.storage_node import remove

REFUSED = 3  # exit status: Slurm did not take the job


def order(plan: Mapping[str, Any], job: str, nodes: Sequence[str], folder: Path) -> Order:
    """Return the job. `job`: the text for sbatch."""
    sites = len({plan["sites"][node] for node in nodes})
    in_job = {"targets": plan["targets"], "nodes": list(nodes), "step_seconds": plan["step_seconds"]}
    return Order(
        folder,
        tuple(nodes),
        {"job.sh": job, PLAN: json.dumps(in_job)},
        [f"--ntasks={len(nodes)}", "--ntasks-per-node=1", f"--switches={sites}"],
        reads=[f"{FIGURES_FILE}.*"],
    )


def main(_: Sequence[str]) -> int:
    """Measure, print the report, return the exit status."""
    task = json.load(sys.stdin)
    # If it is terminated, it cancels its job.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = task["plan"]
    folder = Path.home() / ".tailrack" / "validation" / plan["scope"]
    try:
        (report,) = run_jobs(
            [order(plan, task["cpu_job"], task["nodes"], folder)], Limits(plan["start_seconds"], plan["run_seconds"])
        )
    except Refused as refused:
        say(str(refused))
        return REFUSED
    finally:
        remove(folder / "data")  # a killed job leaves its files on the share
    files = report.pop("files")
    report["output"] = "".join([*files.values(), report["output"]])
    sys.stdout.write(json.dumps({**report, "absent": {**task["absent"], **report.get("absent", {})}}) + "\n")
    return 0
