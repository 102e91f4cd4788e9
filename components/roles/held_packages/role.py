"""What was proven stays: packages of the cluster's daemons keep their version, and nobody restarts these under jobs."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template

NEEDRESTART = "/etc/needrestart/conf.d/tailrack.conf"


def role(_settings: ClusterSettings) -> Role:
    """The last in the order: what the other roles have installed is held."""
    return Role(
        "held_packages",
        after=("slurm", "pam_slurm_adopt", "container_smoke", "gpu", "tailnet", "munge"),
        files={"machine": (File(NEEDRESTART, template("held_packages", "needrestart.conf")),)},
    )
