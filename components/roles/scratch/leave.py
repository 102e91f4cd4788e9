"""Remove the scratch folders. Their jobs have ended before."""

from __future__ import annotations

from components.node import files
from components.node.log import note
from components.node.step.step import Step
from components.roles.scratch.compute import MADE
from components.roles.scratch.sweep import SCRATCH, empty_folder, is_there


def leave(step: Step) -> None:
    """Remove jobs' folders, then the folders around them that this role created."""
    for folder in filter(None, files.lines(SCRATCH)):
        for name, owner in files.folders_in(folder).items():
            empty_folder(f"{folder}/{name}", owner, "--wait", "-p", "RuntimeMaxSec=100")
        if is_there(folder) and not files.remove_if_empty(folder):
            note(f"{folder} stays: some files of jobs could not be removed")
    # Inner folders first; folders with other files stay.
    for folder in sorted(files.lines(MADE), reverse=True):
        files.remove_if_empty(folder)
    files.remove(SCRATCH)
    files.remove(MADE)
