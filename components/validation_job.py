"""The batch job that measures all_reduce over some nodes."""

from __future__ import annotations

from components.render import render
from components.validation.model import Measurement


def validation_job(scope: str, nodes: tuple[str, ...], measurement: Measurement, minutes: int, switches: int) -> str:
    """Return the text for sbatch.

    scope      a site's name or `cross-site`
    nodes      all nodes that take part, each with the same number of ranks
    minutes    time limit of the job
    switches   how many sites it may span
    """
    return render(
        "templates/validation_job.sh.j2",
        scope=scope,
        nodes=nodes,
        measurement=measurement,
        ranks_per_node=measurement.ranks // len(nodes),
        minutes=minutes,
        switches=switches,
    )
