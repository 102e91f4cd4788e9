"""A copy of this machine's configuration of Slurm's commands, which slurmd deletes when it stops (/run/slurm)."""

from __future__ import annotations

from components.node import files
from components.node.run import run

_FROM_CONTROLLER = "/run/slurm/conf"
_OF_HEAD_NODE = "/etc/slurm"


def copy_configuration(folder: str) -> None:
    """Copy it into a folder of root's, which is made again."""
    source = _FROM_CONTROLLER if files.exists(f"{_FROM_CONTROLLER}/slurm.conf") else _OF_HEAD_NODE
    files.remove_folder(folder)
    files.make_folder(folder, 0o700)
    run("cp", "-rLT", source, folder)


def with_configuration(folder: str) -> dict[str, str]:
    """Return the environment of commands that use a copy."""
    return {"SLURM_CONF": files.on_disk(f"{folder}/slurm.conf")}
