"""One release of Slurm for all machines: built from its source, instead of the distribution's packages."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role
from components.roles.slurm.settings import address


def role(settings: ClusterSettings) -> Role | None:
    """Return the role; None if each machine uses its distribution's release."""
    slurm = settings.slurm
    if slurm.release is None:
        return None
    # procps ends build processes; everything else is in every system.
    return Role(
        "slurm_release",
        after=("nfs_exports",),
        packages={"head": ("procps",), "node": ("procps",)},
        values={"from": address(slurm.release, slurm.release_source)},
    )
