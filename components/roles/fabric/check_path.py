"""Write the tailnet address of the head node, the only machine whose requests for a proof this one accepts."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import STATE_DIR, Step

HEAD = f"{STATE_DIR}/head-address"


@dataclass(frozen=True)
class HeadAddress:
    """The tailnet address of the head node."""

    head_address: str


def check_path(step: Step, values: HeadAddress) -> None:
    """Write the file."""
    files.write(HEAD, values.head_address)
