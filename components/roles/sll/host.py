"""The command `sll` on the head node."""

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


def leave(step: Step) -> None:
    """Remove it. Another program of the same name stays."""
    if "/usr/local/lib/tailrack/program/" in (files.read(COMMAND) or ""):
        files.remove(COMMAND)
