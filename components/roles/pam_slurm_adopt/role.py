"""SSH logins on compute nodes: a user of the cluster needs a job there, and lands in it (pam_slurm_adopt)."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """Whether a node really has it is decided there: without cgroups there is nothing that a login could land in."""
    return Role("pam_slurm_adopt", after=("slurm",), values={"PAM_SLURM_ADOPT_WANTED": settings.slurm.ssh_needs_job})
