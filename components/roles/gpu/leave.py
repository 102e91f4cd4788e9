"""Remove the units, so that they do not start at the next boot."""

from __future__ import annotations

from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.gpu.remove import remove_gpu_units, remove_roce_unit


def leave(step: Step) -> None:
    """Remove the units and their programs."""
    do_each(remove_gpu_units, remove_roce_unit)
