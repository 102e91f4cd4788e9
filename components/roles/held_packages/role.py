"""Hold the versions of the cluster's packages, and keep needrestart from restarting daemons under jobs."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template

NEEDRESTART = "/etc/needrestart/conf.d/tailrack.conf"


def role(_settings: ClusterSettings) -> Role:
    """Return the role. It comes last, to hold the packages that other roles have installed."""
    return Role(
        "held_packages",
        after=("slurm", "pam_slurm_adopt", "container_smoke", "gpu", "tailnet", "munge"),
        files={"machine": (File(NEEDRESTART, template("held_packages", "needrestart.conf")),)},
    )
