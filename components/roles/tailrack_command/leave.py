"""Remove the command. Role machine removes the folder with the other files."""

from __future__ import annotations

from components.node import files
from components.node.install import FOLDER
from components.node.step.step import Step
from components.roles.tailrack_command.command import COMMAND


def leave(step: Step) -> None:
    """Remove the command if it is tailrack's own."""
    text = files.read(COMMAND) or ""
    if f"{FOLDER}/" in text:
        files.remove(COMMAND)
