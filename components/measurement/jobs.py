"""The batch jobs that measure a collective on nodes: with their CPUs, and with their GPUs."""

from __future__ import annotations

import shlex

from components.roles.render import render
from components.settings.nccl import Nccl
from components.validation.collectives import COLLECTIVES
from components.validation.model import Measurement


def validation_job(scope: str, nodes: tuple[str, ...], measurement: Measurement, minutes: int, switches: int) -> str:
    """Return the text for sbatch of a measurement on CPUs.

    scope      a site's name or `cross-site`
    nodes      all nodes that take part, each with the same number of ranks
    minutes    the job's time limit
    switches   the number of sites that the job may span
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
    """Return the text for sbatch of a measurement on GPUs. The arguments of sbatch give the nodes and sizes.

    minutes    the job's time limit
    """
    # An image has nccl-tests on its PATH, unless the config names a program.
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
