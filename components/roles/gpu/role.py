"""GPUs: found by the gate, given to jobs by Slurm as gres of type `gpu`."""

from __future__ import annotations

from components.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(_settings: ClusterSettings) -> Role:
    """A node's own GPUs are in its Slurm fragment (components/roles/slurm/fragment.py)."""
    return Role("gpu", slurm_conf={"GresTypes": "gpu"})
