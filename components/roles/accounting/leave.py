"""The record of job usage stays on the machine, as users' files do."""

from __future__ import annotations

from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.accounting.remove import parts
from components.roles.slurm.folder import leave_slurm_folder


def leave(step: Step) -> None:
    """Remove accounting."""
    do_each(*parts(), leave_slurm_folder)
