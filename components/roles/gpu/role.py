"""GPUs: found by the gate, given to jobs by Slurm as gres of type `gpu`, ready at boot, looked after."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import FOLDER, Role, SlurmKey, template

COLLECTOR = FOLDER.parent / "validation" / "preflight" / "collect.py"


def role(settings: ClusterSettings) -> Role:
    """A node's own GPUs are in its Slurm fragment (components/roles/slurm/fragment.py)."""
    return Role(
        "gpu",
        after=("machine",),
        values={"roce_apply": settings.fabric.roce.apply},
        texts={
            "boot_program": template("gpu", "tailrack-gpu"),
            "boot_unit": template("gpu", "tailrack-gpu.service"),
            "health_program": COLLECTOR.read_text(encoding="utf-8").removesuffix("\n"),
            "health_unit": template("gpu", "tailrack-health.service"),
            "health_timer": template("gpu", "tailrack-health.timer"),
            "roce_program": template("gpu", "tailrack-roce"),
            "roce_unit": template("gpu", "tailrack-roce.service"),
        },
        slurm_conf={
            "GresTypes": SlurmKey("gpu", "jobs could not ask for GPUs"),
            # A limit of the shell that a job was submitted from must not come along.
            "PropagateResourceLimitsExcept": SlurmKey("MEMLOCK", "NCCL could not pin memory"),
        },
    )
