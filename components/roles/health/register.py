"""Remove a leaving node's records of the benchmark check."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import STATE_DIR, Step
from components.roles.health.gpu_records import GPUS

RECORDS = f"{STATE_DIR}/deep-check"


@dataclass(frozen=True)
class Leaving:
    """The name of the node."""

    node_name: str


def forget(step: Step, values: Leaving) -> None:
    """Remove them."""
    files.remove(f"{RECORDS}/{values.node_name}.json")
    files.remove(f"{RECORDS}/{GPUS}/{values.node_name}.json")
