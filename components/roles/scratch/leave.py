"""Remove the scratch folders and caches. Their jobs have ended before."""

from __future__ import annotations

from components.node import files, systemd
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.scratch.caches import remove_caches
from components.roles.scratch.compute import remove_programs
from components.roles.scratch.paths import CACHES, MADE, SCRATCH
from components.roles.scratch.sweep import copy_folder, empty_folder, is_there, put_aside_ended, unit_of

_LIMIT_SECONDS = 100
_WAIT = ("--wait", "-p", f"RuntimeMaxSec={_LIMIT_SECONDS}")


def leave(step: Step) -> None:
    """Remove jobs' folders, after a last try of their copies, then the folders around them that this role created."""
    for folder in filter(None, files.lines(SCRATCH)):
        put_aside_ended(folder)
        for name, owner in files.folders_in(folder).items():
            if name.startswith("sync."):
                _finish_copies(folder, name, owner)
            else:
                empty_folder(f"{folder}/{name}", owner, *_WAIT)
        if is_there(folder) and not files.remove_if_empty(folder):
            note(f"{folder} stays: some files of jobs could not be removed or copied")
    for folder in filter(None, files.lines(CACHES)):
        remove_caches(folder, *_WAIT)
    remove_programs()
    # Inner folders first; folders with other files stay.
    for folder in sorted(files.lines(MADE), reverse=True):
        files.remove_if_empty(folder)
    files.remove(MADE)


def _finish_copies(folder: str, name: str, owner: tuple[int, int]) -> None:
    """Wait for copies that are being made, or make them. Files that could not be copied in time stay."""
    unit = unit_of(name)
    copy_folder(folder, name, owner, *_WAIT)
    wait_until(lambda: not systemd.is_active(unit), _LIMIT_SECONDS)
    attempt("systemctl", "stop", unit, quiet=True)
