"""Install the command `sll`."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step

COMMAND = "/usr/local/bin/sll"


@dataclass(frozen=True)
class SllValues:
    """The command."""

    sll_program: str


def services(step: Step, values: SllValues) -> None:
    """Install it."""
    files.write(COMMAND, values.sll_program, 0o755)
