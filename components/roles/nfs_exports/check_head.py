"""Report a foreign nfs-ganesha, whose place the head node's server takes.

Exports of the kernel's server stay beside ours.
"""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.nfs_exports.foreign import GANESHA_FILE, foreign_ganesha


def check_head(step: Step) -> None:
    """Report it to the role foreign_cluster."""
    if foreign_ganesha():
        step.foreign.append(f"an NFS server's configuration ({GANESHA_FILE})")
