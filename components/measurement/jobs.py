"""The batch jobs that measure a collective over some nodes: on their CPUs, and between their GPUs."""

from __future__ import annotations

import shlex

from components.roles.render import render
from components.settings.nccl import Nccl
from components.validation.collectives import COLLECTIVES
from components.validation.model import Measurement


def validation_job(scope: str, nodes: tuple[str, ...], measurement: Measurement, minutes: int, switches: int) -> str:
    """Return the text for sbatch.

    scope      a site's name or `cross-site`
    nodes      all nodes that take part, each with the same number of ranks
    minutes    time limit of the job
    switches   how many sites it may span
    """
    return render(
        "measurement/templates/validation_job.sh.j2",
        scope=scope,
        nodes=nodes,
        measurement=measurement,
        ranks_per_node=measurement.ranks // len(nodes),
        minutes=minutes,
        switches=switches,
    )


def nccl_job(scope: str, settings: Nccl, minutes: int) -> str:
    """Return the text for sbatch of a measurement between GPUs; which nodes and sizes, sbatch's arguments say.

    minutes    time limit of the job
    """
    # Where an image has no program of another place, it has nccl-tests on its PATH.
    program = settings.program or (COLLECTIVES[settings.collective].program if settings.image else "")
    return render(
        "measurement/templates/nccl_job.sh.j2",
        scope=scope,
        partition=settings.partition or "all",
        minutes=minutes,
        exports=[(name, shlex.quote(value)) for name, value in sorted(settings.exports.items())],
        program=shlex.quote(program),
        program_is_there=bool(program),
        collective=settings.collective,
        options=[shlex.quote(option) for option in settings.srun_options],
        image=shlex.quote(settings.image) if settings.image else "",
        factor=settings.factor,
        iterations=settings.iterations,
        warmup=settings.warmup,
    )
