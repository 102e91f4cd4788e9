"""The training benchmark as the head node is told it: the job, the files that it runs, and the plan. No pulumi."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

from components.measurement.plan import FOLDER, START_SECONDS, Node, beside_program
from components.roles.python_program import python_program
from components.roles.render import render
from components.settings.training import Training
from components.steps import composition

# No site may have a name with '_': what is kept of it lies beside what is kept of theirs.
SCOPE = "training_benchmark"
PROGRAMS = FOLDER.parents[1] / "examples" / "training"
# Of examples/training/benchmark.py: figures of another one are not comparable, so it is measured anew.
VERSION = 1


@cache
def script() -> composition.Script:
    """The step that trains, with the programs that it starts: that of the measurement, with a driver of its own."""
    driver = python_program("components.validation.training_run", "told")
    texts = {"DRIVER": json.dumps(driver), "JOB_FILES": json.dumps(job_files())}
    return composition.single(FOLDER / "validate.sh").with_texts(texts)


def job_files() -> dict[str, str]:
    """Return the files of the job, by name: the benchmark, and the program that lists other processes on the GPUs."""
    programs = {name: (PROGRAMS / name).read_text(encoding="utf-8") for name in ("benchmark.py", "ranks.py")}
    return {**programs, "foreign.py": beside_program()}


def training_job(settings: Training) -> str:
    """Return the text for sbatch; which nodes and how many ranks, sbatch's arguments say."""
    return render(
        "measurement/templates/training_job.sh.j2",
        minutes=settings.time_limit_minutes,
        python=shlex.quote(settings.python or ("python3" if settings.image else "/usr/bin/python3")),
        image=shlex.quote(settings.image) if settings.image else "",
        warmup=settings.warmup,
        steps=settings.steps,
    )


def training_plan(nodes: Mapping[str, Node], settings: Training) -> dict[str, Any]:
    """Return what components/validation/training_run.py reads."""
    return {
        "scope": SCOPE,
        "sites": {name: node.site for name, node in nodes.items()},
        "gpus": {name: node.gpus for name, node in nodes.items()},
        "start_seconds": START_SECONDS,
        "run_seconds": run_seconds(settings),
    }


def run_seconds(settings: Training) -> int:
    """How long the job may take from its start, and Slurm to end it at its limit."""
    return settings.time_limit_minutes * 60 + 60
