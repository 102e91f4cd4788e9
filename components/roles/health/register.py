"""Remove a leaving node's record of the benchmark check."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import STATE_DIR, Step

RECORDS = f"{STATE_DIR}/deep-check"


@dataclass(frozen=True)
class Leaving:
    """The name of the node."""

    node_name: str


def forget(step: Step, values: Leaving) -> None:
    """Remove it."""
    files.remove(f"{RECORDS}/{values.node_name}.json")
