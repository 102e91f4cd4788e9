"""How machines of a stack are reached: as the steps that ran on them were, whoever asks them now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from components.steps.label import StepLabel
from engine.events import Made


def ways_to(made: Iterable[Made]) -> dict[str, Mapping[str, Any]]:
    """Return the machines that steps of the stack have run on, with the connection of those; empty for this one.

    made   what the last run left. Where that ended half way, its first steps know the newest connection.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for each in made:
        if (label := StepLabel.of(each.command)) and label.machine:
            found[label.machine] = found.get(label.machine) or each.connection
    return found
