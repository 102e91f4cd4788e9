"""The batch job that measures all_reduce over some nodes."""

from __future__ import annotations

from components.config_files.render import render
from components.validation.model import Measurement


def validation_job(scope: str, nodes: tuple[str, ...], measurement: Measurement, minutes: int, switches: int) -> str:
    """Return the text for sbatch.

    scope      a site's name or `cross-site`
    nodes      all nodes that take part, each with the same number of ranks
    minutes    time limit of the job
    switches   how many sites it may span
    """
    return render(
        "validation_job.sh",
        scope=scope,
        nodes=nodes,
        measurement=measurement,
        ranks_per_node=measurement.ranks // len(nodes),
        minutes=minutes,
        switches=switches,
    )
