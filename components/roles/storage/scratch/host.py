"""Jobs' TMPDIR on a node's disk."""

import stat

from components.node import files, folders
from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import Step
from components.roles.storage.scratch.sweep import (
    CACHES,
    CLEAN,
    LIMITS,
    MADE,
    SCRATCH,
    empty_folder,
    is_there,
    put_aside_ended,
    remove_caches,
    sweep,
)

# Subfolders of the config's folder, which may contain other files.
_JOBS_FOLDER, _CACHES_FOLDER = "tailrack-jobs", "tailrack-caches"
# Seconds for a user's caches that the config no longer wants. The task removes the rest.
_EMPTY_SECONDS = 10
_ANOTHER = "set tailrack:scratch.folder to another folder; then run up again"
_WAIT = ("--wait", "-p", "RuntimeMaxSec=100")


def compute(step: Step, scratch_folder: str, scratch_cache_days: int, scratch_cache_disk_percent: int) -> None:
    """Make the folders, list them for the scripts around jobs, and empty folders whose jobs have ended.

    scratch_folder               a folder on a local disk; empty without scratch space
    scratch_cache_days           0 if caches stay in users' homes
    scratch_cache_disk_percent   how full caches may make the disk
    """
    folder = f"{scratch_folder}/{_JOBS_FOLDER}" if scratch_folder else ""
    caches = f"{scratch_folder}/{_CACHES_FOLDER}" if folder and scratch_cache_days else ""
    if folder:
        for path in (folder, *filter(None, [caches])):
            _require_root_path(path, step.host)
            for part in (scratch_folder, path):
                _ensure_folder(part, step.host)
        files.write(LIMITS, f"{scratch_cache_days} {scratch_cache_disk_percent}")
    # Folders of an earlier config are emptied after their jobs have ended.
    for former in _list(CACHES, caches):
        remove_caches(former, "--wait", "-p", f"RuntimeMaxSec={_EMPTY_SECONDS}")
    if _list(SCRATCH, folder) or folder:
        sweep()
    left = [*_list(CACHES, caches), *_list(SCRATCH, folder)]
    if not folder and not left:
        remove_programs()
    elif not folder:
        step.declare(CLEAN)


def remove_programs() -> None:
    """Stop cleaning, and remove the programs and the lists."""
    for path in (CLEAN, SCRATCH, CACHES, LIMITS):
        files.remove(path)


def _list(file: str, folder: str) -> list[str]:
    """Write a list of folders, the present one first, and return the former ones, which still exist."""
    former = [path for path in files.lines(file) if path not in ("", folder) and is_there(path)]
    if folder or former:
        files.write(file, "\n".join([folder, *former]))
    else:
        files.remove(file)
    return former


def _require_root_path(folder: str, host: str) -> None:
    """Raise Failure if any account but root could replace a folder on the path."""
    for part in reversed(folders.parts_of(folder)):
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
    folders.make_new_folder(path)


def leave(step: Step) -> None:
    """Remove jobs' folders, then the folders around them that this role created."""
    for folder in filter(None, files.lines(SCRATCH)):
        put_aside_ended(folder)
        for name, owner in folders.folders_in(folder).items():
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
