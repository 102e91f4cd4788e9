"""Create the parent folder of jobs' scratch folders, before slurmd starts."""

from __future__ import annotations

import stat
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.step.step import STATE_DIR, Step
from components.roles.scratch.sweep import SCRATCH, is_there, sweep

# Folders that this step created, one per line.
MADE = f"{STATE_DIR}/scratch-made"
# Subfolder of the config's folder, which may contain other files.
_JOBS_FOLDER = "tailrack-jobs"
_ANOTHER = "set tailrack:scratch.folder to another folder; then run up again"


@dataclass(frozen=True)
class ScratchValues:
    """A folder on a local disk; empty without scratch space."""

    scratch_folder: str


def compute(step: Step, values: ScratchValues) -> None:
    """Make the folder, list it for the scripts around jobs, and empty folders whose jobs have ended."""
    folder = f"{values.scratch_folder}/{_JOBS_FOLDER}" if values.scratch_folder else ""
    if folder:
        _require_root_path(folder, step.host)
        for path in (values.scratch_folder, folder):
            _ensure_folder(path, step.host)
    # Folders of an earlier config are emptied after their jobs have ended.
    former = [path for path in files.lines(SCRATCH) if path not in ("", folder) and is_there(path)]
    if folder or former:
        files.write(SCRATCH, "\n".join([folder, *former]))
        sweep()
    else:
        files.remove(SCRATCH)


def _require_root_path(folder: str, host: str) -> None:
    """Raise Failure if any account but root could replace a folder on the path."""
    for part in reversed(files.parts_of(folder)):
        path = part.path
        if part.type == stat.S_IFLNK:
            raise Failure(
                f"{path} is a link on {host}, and must be a folder",
                "set tailrack:scratch.folder to the link's target, then run up again",
            )
        if part.type != stat.S_IFDIR:
            raise Failure(
                f"{path} is not a folder on {host}", "set tailrack:scratch.folder to a folder, then run up again"
            )
        if part.uid:
            raise Failure(
                f"{path} belongs to uid {part.uid} on {host}, who could replace jobs' folders",
                f"run 'chown root {path}' there, or {_ANOTHER}",
            )
        if part.mode & 0o022 and not part.mode & stat.S_ISVTX:
            raise Failure(
                f"accounts other than root can write to {path} on {host} (mode {part.mode:o}), and could remove jobs' "
                "folders",
                f"run 'chmod +t {path}' there, or {_ANOTHER}",
            )


def _ensure_folder(path: str, host: str) -> None:
    if is_there(path):
        return
    above, _, name = path.rpartition("/")
    if not is_there(above):
        raise Failure(
            f"{above}, the parent of the scratch folder {name}, does not exist on {host}",
            f"mount the disk there, or {_ANOTHER}",
        )
    # Note the folder before creating it, so that an interrupted step leaves no unknown folder.
    files.add_line(MADE, path)
    files.make_new_folder(path)
