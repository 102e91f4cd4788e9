"""Take the permission to use profilers back on a machine that leaves."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.profiling.remove import remove_profiling


def leave(step: Step) -> None:
    """Remove the settings."""
    remove_profiling()
