"""Connections to the machines of a stack, taken from the steps that ran on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cli.run_events import Made
from components.steps.command_line import BRINGS_SUDO
from components.steps.label import StepLabel


def connections_by_machine(resources: Iterable[Made]) -> dict[str, Mapping[str, Any]]:
    """Return the connection of each machine that ran a step of the stack; it is empty for this machine.

    resources   of the last run. After an incomplete run, its first steps have the newest connection.
    """
    connections: dict[str, Mapping[str, Any]] = {}
    for resource in resources:
        if (label := StepLabel.of(resource.command)) and label.machine:
            connections[label.machine] = connections.get(label.machine) or resource.connection
    return connections


def sudo_password(resources: Iterable[Made], machine: str) -> str:
    """Return the line with the password for sudo that a machine's steps bring (steps/start.sh); empty without one."""
    for resource in resources:
        label = StepLabel.of(resource.command)
        if label and label.machine == machine and resource.command.endswith(f"{BRINGS_SUDO}'"):
            return resource.whole_stdin.partition("\n")[0] + "\n"
    return ""
