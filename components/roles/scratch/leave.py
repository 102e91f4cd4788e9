"""Remove the scratch folders and caches. Their jobs have ended before."""

from __future__ import annotations

from components.node import files
from components.node.log import note
from components.node.step.step import Step
from components.roles.scratch.caches import remove_caches
from components.roles.scratch.compute import remove_programs
from components.roles.scratch.paths import CACHES, MADE, SCRATCH
from components.roles.scratch.sweep import empty_folder, is_there, put_aside_ended

_WAIT = ("--wait", "-p", "RuntimeMaxSec=100")


def leave(step: Step) -> None:
    """Remove jobs' folders, then the folders around them that this role created."""
    for folder in filter(None, files.lines(SCRATCH)):
        put_aside_ended(folder)
        for name, owner in files.folders_in(folder).items():
            empty_folder(f"{folder}/{name}", owner, *_WAIT)
        if is_there(folder) and not files.remove_if_empty(folder):
            note(f"{folder} stays: some files of jobs could not be removed")
    for folder in filter(None, files.lines(CACHES)):
        remove_caches(folder, *_WAIT)
    remove_programs()
    # Inner folders first; folders with other files stay.
    for folder in sorted(files.lines(MADE), reverse=True):
        files.remove_if_empty(folder)
    files.remove(MADE)
