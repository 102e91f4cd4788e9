"""Look for another cluster's slurmdbd."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.accounting.paths import DBD_CONF
from components.roles.slurm.foreign_files import is_foreign


def check(step: Step) -> None:
    """Report its configuration."""
    if is_foreign(DBD_CONF):
        step.foreign.append(DBD_CONF)
