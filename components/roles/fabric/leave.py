"""Remove the service and the files for jobs, which could disturb another cluster's jobs."""

from __future__ import annotations

from components.node import files, systemd
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.fabric.check_path import HEAD
from components.roles.fabric.join import PROGRAM, SERVICE, SOCKET

_ENROOT = "/etc/enroot"
_FILES = (
    "/usr/local/sbin/tailrack-fabric-again",
    HEAD,
    PROGRAM,
    "/usr/local/lib/tailrack/task-prolog",
    f"{_ENROOT}/mounts.d/60-tailrack.fstab",
    f"{_ENROOT}/hooks.d/60-tailrack.sh",
)


def leave(step: Step) -> None:
    """Remove them, and the folders that they leave empty."""
    do_each(
        lambda: systemd.retire(SOCKET, SERVICE),
        lambda: [files.remove(path) for path in _FILES],
        _remove_empty_folders,
    )


def _remove_empty_folders() -> None:
    for name in files.names_in(_ENROOT):
        files.remove_if_empty(f"{_ENROOT}/{name}")
    files.remove_if_empty(_ENROOT)
