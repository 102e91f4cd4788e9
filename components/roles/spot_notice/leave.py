"""Remove the service."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.spot_notice.compute import remove_service


def leave(step: Step) -> None:
    """Remove it."""
    remove_service()
