"""Remove the command `sll`."""

from __future__ import annotations

from components.node import files
from components.node.step.step import Step
from components.roles.sll.services import COMMAND


def leave(step: Step) -> None:
    """Remove it. Another program of the same name stays."""
    if "/usr/local/lib/tailrack/program/" in (files.read(COMMAND) or ""):
        files.remove(COMMAND)
