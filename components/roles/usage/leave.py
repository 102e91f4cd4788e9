"""Remove the sampler and the recorder."""

from __future__ import annotations

from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.usage.remove import remove_recorder, remove_sampler


def leave(step: Step) -> None:
    """Remove both."""
    do_each(remove_sampler, remove_recorder)
