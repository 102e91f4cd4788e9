"""Search for jobs that hang, on the head node."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.files import File
from components.node.step.step import Step
from components.roles.job_hangs.paths import FINDER, LIMITS
from components.roles.job_hangs.remove import remove_finder


@dataclass(frozen=True)
class FinderValues:
    """The program; 0 minutes without job_hangs in the config."""

    job_hangs_minutes: int
    job_hangs_finder: str


def services(step: Step, values: FinderValues) -> None:
    """Install it, or remove it."""
    if not values.job_hangs_minutes:
        remove_finder()
        return
    files.write_all([File(LIMITS, str(values.job_hangs_minutes)), File(FINDER, values.job_hangs_finder, 0o755)])
