"""The storage measurement for the head node: its targets, the job and the plan. No pulumi."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from components.measurement.plan import START_SECONDS, STEP, Node
from components.roles.cluster_settings import ClusterSettings
from components.roles.program import command_line
from components.roles.render import render
from components.settings.validation import SCRATCH, SHARE, StorageMeasurement
from components.steps import composition
from components.validation.storage_node import IN_JOB, IN_MOUNT, IN_SCRATCH

# A site's name has no '_', so this name does not clash with a site's result files.
SCOPE = "storage_measurement"
# The version of the figures. Results of another version are not comparable: it is measured again.
VERSION = 1


@dataclass(frozen=True)
class Target:
    """Storage to measure.

    name     its name in floors and outputs
    path     its path on nodes
    place    where a node measures (components/validation/storage_node.py)
    shared   whether several nodes see the same files
    sites    sites whose nodes have it; empty for all
    """

    name: str
    path: str
    place: str
    shared: bool
    sites: tuple[str, ...] = ()

    def is_at(self, site: str) -> bool:
        return not self.sites or site in self.sites


def targets(settings: ClusterSettings) -> tuple[Target, ...]:
    """Return the storage that a cluster measures."""
    scratch = settings.scratch.folder
    return (
        Target(SHARE, settings.storage.mount, IN_JOB, shared=True),
        *(Target(mount.path, mount.path, IN_MOUNT, True, mount.sites or ()) for mount in settings.storage.mounts),
        *([Target(SCRATCH, scratch, IN_SCRATCH, shared=False)] if scratch else []),
    )


@cache
def script() -> composition.Script:
    """Return the script of the storage step: the measurement's script with another driver."""
    return composition.single(STEP).with_texts({"DRIVER": command_line("measure-storage")})


def storage_job(minutes: int) -> str:
    """Return the text for sbatch. The arguments of sbatch give the nodes."""
    return render("measurement/templates/storage_job.sh.j2", minutes=minutes)


def storage_plan(
    nodes: Mapping[str, Node], measured: tuple[Target, ...], settings: StorageMeasurement
) -> dict[str, Any]:
    """Return the plan that components/validation/storage_run.py reads."""
    return {
        "scope": SCOPE,
        # One node is enough, and busy nodes do not prevent the measurement of the others.
        "each_node": True,
        "sites": {name: node.site for name, node in nodes.items()},
        "targets": [
            {
                **{name: value for name, value in asdict(target).items() if name != "sites"},
                "nodes": sorted(name for name, node in nodes.items() if target.is_at(node.site)),
                "size": settings.size,
                "seconds": settings.seconds,
            }
            for target in measured
        ],
        "step_seconds": step_seconds(settings),
        "start_seconds": START_SECONDS,
        "run_seconds": run_seconds(len(nodes), measured, settings),
    }


def step_seconds(settings: StorageMeasurement) -> int:
    """Return the longest time of one part on one node. A slow disk needs long to finish what has begun."""
    return 2 * settings.seconds + 120


def job_minutes(nodes: int, measured: tuple[Target, ...], settings: StorageMeasurement) -> int:
    """Return the time limit of the job: nodes measure a shared target in turn, the others at the same time."""
    parts = sum(nodes if target.shared else 1 for target in measured)
    # A node that hangs costs a whole step; the time for all others is twice the expected one.
    return math.ceil((parts * (2 * settings.seconds + 10) + 2 * step_seconds(settings)) / 60)


def run_seconds(nodes: int, measured: tuple[Target, ...], settings: StorageMeasurement) -> int:
    """Return the seconds for the job, with those that Slurm needs to end it at its limit."""
    return job_minutes(nodes, measured, settings) * 60 + 60
