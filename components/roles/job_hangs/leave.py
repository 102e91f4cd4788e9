"""Remove the watch and the finder."""

from __future__ import annotations

from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.job_hangs.remove import remove_finder, remove_watch


def leave(step: Step) -> None:
    """Remove both."""
    do_each(remove_watch, remove_finder)
