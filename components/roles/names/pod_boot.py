"""Write a pod's own names in a new container."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.names.pod import pod


def pod_boot(step: Step) -> None:
    """Write the names."""
    pod(step)
