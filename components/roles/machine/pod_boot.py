"""Start the services of a pod after a stop. slurmd waits until all phases are done."""

from __future__ import annotations

from components.node import files, services
from components.node.step.step import Step
from components.roles.pod.paths import READY


def pod_boot(step: Step) -> None:
    """Start them."""
    files.remove(READY)
    services.start_all()
