"""A node's export: a file with its one address."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.nfs_exports.foreign import EXPORTS_DIR
from components.roles.nfs_exports.ganesha import configure_ganesha
from components.roles.nfs_exports.kernel_server import reload_kernel_server


@dataclass(frozen=True)
class Exported:
    """A node, the share's folder, and whether the kernel serves it (a fact of the check step)."""

    node_name: str
    nfs_exports_path: str
    head_kernel_nfs: bool

    @property
    def file(self) -> str:
        """Return the path of the node's file."""
        return f"{EXPORTS_DIR}/tailrack-{self.node_name}.exports"


@dataclass(frozen=True)
class NewExport(Exported):
    """The line of the node's export too (export.py)."""

    node_export: str


def register(step: Step, values: NewExport) -> None:
    """Export the share to the node."""
    step.take_lock()
    files.write(values.file, values.node_export)
    _apply(values)


def forget(step: Step, values: Exported) -> None:
    """Take the export back."""
    files.remove(values.file)
    _apply(values)


def _apply(values: Exported) -> None:
    """Start the server if needed and reload all export files, so that no old address of a node remains.

    The head node's own step does the rest, because nodes' steps wait for each other.
    """
    if values.head_kernel_nfs:
        reload_kernel_server()
    else:
        configure_ganesha(values.nfs_exports_path)
