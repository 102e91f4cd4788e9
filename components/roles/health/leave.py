"""Remove tailrack's scripts and checks from a machine that leaves."""

from __future__ import annotations

from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.health.remove import remove_deep_check, remove_health


def leave(step: Step) -> None:
    """Remove them."""
    do_each(remove_deep_check, remove_health)
