"""Write this machine's GPUs and its own keys into its own files.

The controller serves gres.conf, which includes this machine's by path; Slurm serves only files named without a path
(src/common/fetch_config.c). slurmd then finds its line when it starts, and the controller needs no reconfiguration.
slurm.conf and cgroup.conf include theirs if machines differ (own_keys.py). This runs before the head node knows the
machine and serves those files.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.files import File
from components.node.step.step import Step
from components.roles.slurm.profiles import OWN_CGROUP_CONF, OWN_SLURM_CONF

_WRITTEN = "# Written by tailrack."


@dataclass(frozen=True)
class OwnLines:
    """The machine's line of gres.conf, empty without GPUs, and its lines of slurm.conf and cgroup.conf."""

    node_gres_conf: str
    node_slurm_keys: str
    node_cgroup_keys: str


def join(step: Step, values: OwnLines) -> None:
    """Write the files."""
    texts = {
        "/etc/tailrack/gres.conf": values.node_gres_conf,
        OWN_SLURM_CONF: values.node_slurm_keys,
        OWN_CGROUP_CONF: values.node_cgroup_keys,
    }
    files.write_all([File(path, f"{_WRITTEN}\n{text}") for path, text in texts.items()])
