"""Write this machine's GPUs into its own file.

The controller serves gres.conf, which includes this file by path; Slurm serves only files named without a path
(src/common/fetch_config.c). slurmd then finds its line when it starts, and the controller needs no reconfiguration.
This runs before the head node knows the machine and serves that gres.conf.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step


@dataclass(frozen=True)
class Gpus:
    """The machine's line of gres.conf, empty without GPUs."""

    node_gres_conf: str


def join(step: Step, values: Gpus) -> None:
    """Write the file."""
    files.write("/etc/tailrack/gres.conf", f"# Written by tailrack.\n{values.node_gres_conf}")
