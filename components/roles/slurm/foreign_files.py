"""Slurm's files of another cluster.

With a foreign /etc/slurm/slurm.conf, slurmd still uses its --conf-server, but every Slurm command would contact the
other controller.
"""

from __future__ import annotations

from components.node import files
from components.node.folders import read_theirs, take
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import STATE_DIR
from components.roles.foreign_cluster.host import set_aside
from components.roles.slurm.folder import SLURM_FOLDER, take_slurm_folder

_FOLDER = "/etc/slurm"
_NAMES = ("slurm.conf", "gres.conf", "topology.conf", "cgroup.conf", "mpi.conf", "job_submit.lua")
_OURS = "Written by tailrack."


def foreign_slurm_files() -> list[str]:
    """Return the paths of another cluster's files."""
    return [path for path in (f"{_FOLDER}/{name}" for name in _NAMES) if is_foreign(path)]


def is_foreign(path: str) -> bool:
    """Return whether a file of that folder is another cluster's."""
    if _belongs_to_root():
        # A link, such as one to a share, is another cluster's.
        return files.exists(path) and _OURS not in (files.read(path) or "")
    text = read_theirs(path)
    return text is not None and _OURS not in text


def _belongs_to_root() -> bool:
    return files.owner_of(_FOLDER) in ("", "root")


def set_files_aside(*paths: str) -> None:
    """Move files of that folder into the backup."""
    if not _belongs_to_root():
        take(_FOLDER)
    for path in paths:
        set_aside(path)


def set_foreign_slurm_aside() -> None:
    """Stop Slurm's daemons, and move the foreign configuration and controller state into the backup."""
    paths = foreign_slurm_files()
    if not paths:
        return
    if not attempt("systemctl", "stop", "slurmd", "slurmctld").ok:
        note("at least one of Slurm's daemons is not installed")
    # If this cluster's controller has run here, the state is its own, even if the files were changed.
    if files.is_folder(SLURM_FOLDER) and not files.is_folder(f"{STATE_DIR}/slurm"):
        take_slurm_folder()
        if files.exists(f"{SLURM_FOLDER}/slurmctld"):
            set_aside(f"{SLURM_FOLDER}/slurmctld")
    set_files_aside(*paths)
