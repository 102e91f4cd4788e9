"""Remove the command `sll` and its reader."""

from __future__ import annotations

from components.node import files
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.sll.remove import COMMAND, remove_reader

# The second text is that of earlier releases.
_OURS = ("/usr/local/lib/tailrack/program/", "of tailrack, and the modules")


def leave(step: Step) -> None:
    """Remove both. Another program of the same name stays."""
    do_each(remove_reader, _remove_command)


def _remove_command() -> None:
    text = files.read(COMMAND) or ""
    if any(part in text for part in _OURS):
        files.remove(COMMAND)
