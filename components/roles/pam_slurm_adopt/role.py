"""SSH logins on compute nodes: a user of the cluster needs a job there, and the login joins it (pam_slurm_adopt)."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """Return the role. Each node decides whether it applies: without cgroups a login cannot join a job."""
    return Role("pam_slurm_adopt", after=("slurm",), values={"wanted": settings.slurm.ssh_needs_job})
