"""Connections to the machines of a stack, taken from the steps that ran on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cli.run_events import Made
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
