"""Remove the remaining files with the cluster's name from a pod. tailnet/pod_leave.py removes the rest at the end."""

from __future__ import annotations

from components.node import files
from components.node.step.step import STATE_DIR, Step
from components.roles.machine.leave import remove_programs, remove_state

_KEEP = "/etc/apt/apt.conf.d/99tailrack"


def pod_leave(step: Step) -> None:
    """Remove the files. Packages stay, and users' files on the volume, in /workspace/shared."""
    remove_programs(all_of_them=False)
    files.remove(_KEEP)
    files.remove_folder("/etc/tailrack")
    remove_state("tailnet")
    files.remove_if_empty(STATE_DIR)
