"""A head that would be replaced: the homes, Slurm's state and the cluster's keys are on its disk."""

from __future__ import annotations

from collections.abc import Iterator

from components.steps.label import StepLabel
from engine.events import Event
from stacks.config.allow import HEAD_REPLACED

HEAD = "tailrack:cluster:HeadNode"
HOST_KEY = "hostKey"  # among the component's inputs, where the config says it


def head_replaced(event: Event) -> Iterator[tuple[str, str]]:
    """Find a head node that is another machine, and steps of it that are made anew or undone.

    A machine that is made by the stack takes its steps with it, so what becomes of them says what becomes of it.
    """
    types = event.urn.split("::")[2].split("$")
    if types[-1] == HEAD:
        keys = event.before.get(HOST_KEY), event.after.get(HOST_KEY)
        if event.operation == "delete":
            yield _lost(event.name)
        elif all(keys) and keys[0] != keys[1]:
            text = f"the head node {event.name} has another host key: it is another machine, or one installed anew"
            yield HEAD_REPLACED, text
    elif HEAD in types and (
        # One with triggers is made anew by them, on the machine that there is (components/steps/step.py, `renewed`).
        (event.operation == "replace" and not event.after.get("triggers"))
        or (event.operation == "delete" and event.before.get("delete"))
    ):
        label = StepLabel.of(event.command)
        # What runs here and on no machine of its own keeps nothing of the head node (`<head>-device`).
        if label is None or label.machine:
            yield _lost(label.machine if label else event.name)


def _lost(name: str) -> tuple[str, str]:
    disk = "homes, Slurm's state and the cluster's keys are on its disk"
    return HEAD_REPLACED, f"the head node {name} would be taken out of the cluster: {disk}"
