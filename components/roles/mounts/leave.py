"""Unmount everything that this role mounted on a machine that leaves. Its jobs have ended before."""

from __future__ import annotations

from components.node import files
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.mounts import units
from components.roles.mounts.install import is_installed, remove_watch
from components.roles.mounts.watch import ROLE
from components.roles.slurm.live_features import FOLDER


def leave(step: Step) -> None:
    """Unmount lazily, so that a process that is still there keeps its open files."""
    if is_installed():
        do_each(*(lambda path=path: units.take_away(path, lazily=True) for path in units.recorded()), remove_watch)
    files.remove(f"{FOLDER}/{ROLE}")
    files.remove_if_empty(FOLDER)
