"""Tell a node's program where the share has the names."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.names.published import SOURCE


@dataclass(frozen=True)
class NodeValues:
    """The mount point of the share."""

    nfs_exports_mount: str


def node(step: Step, values: NodeValues) -> None:
    """Write the path of the list."""
    files.write(SOURCE, f"{values.nfs_exports_mount}/.tailrack/names")
