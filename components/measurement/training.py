"""The training benchmark for the head node: the job, its files and the plan. No pulumi."""

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

# A site's name has no '_', so this name does not clash with a site's result files.
SCOPE = "training_benchmark"
PROGRAMS = FOLDER.parents[1] / "examples" / "training"
# The version of examples/training/benchmark.py. Results of another version are not comparable: it is measured again.
VERSION = 1


@cache
def script() -> composition.Script:
    """Return the script of the training step, with its programs: the measurement's script with another driver."""
    driver = python_program("components.validation.training_run", "request")
    texts = {"DRIVER": json.dumps(driver), "JOB_FILES": json.dumps(job_files())}
    return composition.single(FOLDER / "validate.sh").with_texts(texts)


def job_files() -> dict[str, str]:
    """Return the files of the job, by name: the benchmark, and the program that lists other processes on the GPUs."""
    programs = {name: (PROGRAMS / name).read_text(encoding="utf-8") for name in ("benchmark.py", "ranks.py")}
    return {**programs, "foreign.py": beside_program()}


def training_job(settings: Training) -> str:
    """Return the text for sbatch. The arguments of sbatch give the nodes and ranks."""
    return render(
        "measurement/templates/training_job.sh.j2",
        minutes=settings.time_limit_minutes,
        python=shlex.quote(settings.python or ("python3" if settings.image else "/usr/bin/python3")),
        image=shlex.quote(settings.image) if settings.image else "",
        warmup=settings.warmup,
        steps=settings.steps,
    )


def training_plan(nodes: Mapping[str, Node], settings: Training) -> dict[str, Any]:
    """Return the plan that components/validation/training_run.py reads."""
    return {
        "scope": SCOPE,
        "sites": {name: node.site for name, node in nodes.items()},
        "gpus": {name: node.gpus for name, node in nodes.items()},
        "start_seconds": START_SECONDS,
        "run_seconds": run_seconds(settings),
    }


def run_seconds(settings: Training) -> int:
    """Return the seconds for the job, with those that Slurm needs to end it at its limit."""
    return settings.time_limit_minutes * 60 + 60
