"""What a person should know of a cluster that works: what its machines do not hold. Pure."""

from __future__ import annotations

from components.cluster_settings import ClusterSettings


def notes(settings: ClusterSettings, *, cgroups: bool) -> list[str]:
    """Return a sentence for each thing.

    cgroups   whether jobs are confined by cgroups
    """
    found = []
    if settings.slurm.ssh_needs_job and not cgroups:
        found.append(
            "Users log in to compute nodes by SSH without a job there: jobs are not confined by cgroups, so there is "
            "nothing that a login could land in (tailrack:slurm.ssh_needs_job)."
        )
    return found
