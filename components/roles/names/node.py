"""Tell a node's program where the share has the names."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import STATE_DIR, Step


@dataclass(frozen=True)
class NodeValues:
    """The mount point of the share."""

    nfs_exports_mount: str


def node(step: Step, values: NodeValues) -> None:
    """Write the path of the list."""
    files.write(f"{STATE_DIR}/names-from", f"{values.nfs_exports_mount}/.tailrack/names")
