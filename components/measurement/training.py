"""The training benchmark for the head node: the job and the plan. No pulumi."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache
from typing import Any

from components.measurement.plan import START_SECONDS, STEP, Node
from components.roles.program import command_line
from components.roles.render import render
from components.settings.validation import Training
from components.steps import composition

# A site's name has no '_', so this name does not clash with a site's result files.
SCOPE = "training_benchmark"
# The version of examples/training/benchmark.py. Results of another version are not comparable: it is measured again.
VERSION = 1


@cache
def script() -> composition.Script:
    """Return the script of the training step: the measurement's script with another driver."""
    return composition.single(STEP).with_texts({"DRIVER": command_line("measure-training")})


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
