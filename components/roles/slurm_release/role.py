"""One release of Slurm for all machines: built from its source, in the place of the distribution's packages."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role
from components.roles.slurm.settings_release import OLDEST, address
from components.roles.slurm.versions import RELEASES, oldest_accepted


def role(settings: ClusterSettings) -> Role | None:
    """None where each machine has its distribution's release."""
    slurm = settings.slurm
    if slurm.release is None:
        return None
    # What builds is procps' to end; the rest is in every system.
    return Role(
        "slurm_release",
        after=("nfs_exports",),
        packages={"head": ("procps",), "node": ("procps",)},
        values={
            "SLURM_RELEASE_FROM": address(slurm.release, slurm.release_source),
            "SLURM_RELEASE_OLDEST": OLDEST,
            # Each release, and the oldest whose state it reads and whose nodes it takes.
            "SLURM_RELEASE_WINDOWS": [(each, oldest_accepted(each)) for each in RELEASES if each >= OLDEST],
        },
    )
