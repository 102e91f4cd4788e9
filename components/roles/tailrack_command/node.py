"""Install the command on a node with scratch space (tailrack:scratch), for `tailrack sync` in jobs."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.tailrack_command.command import COMMAND
from components.roles.tailrack_command.leave import remove_command


@dataclass(frozen=True)
class CommandValues:
    """The folder on the node's disk, empty without one, and the text of the command."""

    scratch_folder: str
    tailrack_command_program: str


def node(step: Step, values: CommandValues) -> None:
    """Install it, or remove it."""
    if values.scratch_folder:
        files.write(COMMAND, values.tailrack_command_program, 0o755)
    else:
        remove_command()
