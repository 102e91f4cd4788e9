"""Collect the health of a pod's GPUs for the health check. Its driver and device files belong to the host."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, services
from components.node.step.step import Step
from components.roles.gpu.remove import HEALTH_PROGRAM

_SERVICE = "tailrack-health"
# As often as the timer of other machines.
_PROGRAM = f"""#!/bin/sh
# Written by tailrack.
exec 2>&1
while :; do
    /usr/bin/python3 {HEALTH_PROGRAM}
    sleep 900
done"""


@dataclass(frozen=True)
class PodGpus:
    """The number of GPUs from the check step, and the program."""

    node_gpu_count: int
    gpu_health_program: str


def pod(step: Step, values: PodGpus) -> None:
    """Run the collector."""
    if values.node_gpu_count:
        changed = files.write(HEALTH_PROGRAM, values.gpu_health_program, 0o755)
        services.keep(_SERVICE, _PROGRAM, step.host, restart_it=changed)
