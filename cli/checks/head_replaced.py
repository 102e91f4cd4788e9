"""Rule: a replaced head node loses the homes, Slurm's state and the cluster's keys on its disk."""

from __future__ import annotations

from collections.abc import Iterator

from cli.run_events import Event
from components.steps.label import StepLabel
from stacks.config.allow import HEAD_REPLACED

HEAD = "tailrack:cluster:HeadNode"
HOST_KEY = "hostKey"  # an input of the component, if the config has one


def head_replaced(event: Event) -> Iterator[tuple[str, str]]:
    """Find a head node that becomes another machine, and its steps that are replaced or undone.

    A machine that the stack created takes its steps with it, so their fate shows that of the machine.
    """
    types = event.urn.split("::")[2].split("$")
    if types[-1] == HEAD:
        keys = event.before.get(HOST_KEY), event.after.get(HOST_KEY)
        if event.operation == "delete":
            yield _lost(event.name)
        elif all(keys) and keys[0] != keys[1]:
            text = f"the head node {event.name} has another host key: it is another machine, or was reinstalled"
            yield HEAD_REPLACED, text
    elif HEAD in types and (
        # Triggers replace a step on the same machine (components/steps/step.py, `renewed`).
        (event.operation == "replace" and not event.after.get("triggers"))
        or (event.operation == "delete" and event.before.get("delete"))
    ):
        label = StepLabel.of(event.command)
        # A step without a machine runs on this one and keeps nothing of the head node (`<head>-device`).
        if label is None or label.machine:
            yield _lost(label.machine if label else event.name)


def _lost(name: str) -> tuple[str, str]:
    disk = "its disk has the homes, Slurm's state and the cluster's keys"
    return HEAD_REPLACED, f"the head node {name} would be removed from the cluster; {disk}"
