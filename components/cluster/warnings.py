"""What a person should know of a cluster that works: what its machines do not hold. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from components.roles.cluster_settings import ClusterSettings


def warnings_about(
    settings: ClusterSettings,
    *,
    cgroups: bool,
    own_file_system: bool,
    open_ports: Sequence[int],
    restored: tuple[int, int],
) -> list[str]:
    """Return a sentence for each thing.

    cgroups           whether jobs are confined by cgroups
    own_file_system   whether the share is all that there is of its file system
    open_ports        ports of the cluster that others need on the head node
    restored          when the backup was made that the head node is of, and its age then, in seconds; 0 for none
    """
    found = []
    if settings.slurm.ssh_needs_job and not cgroups:
        found.append(
            "Users log in to compute nodes by SSH without a job there: jobs are not confined by cgroups, so there is "
            "nothing that a login could land in (tailrack:slurm.ssh_needs_job)."
        )
    if not own_file_system:
        found.append(
            f"{settings.storage.path} is no file system of its own: by forged NFS handles, root of a node can reach "
            f"all of the file system that it is in. Mount a disk or a volume at {settings.storage.path} on "
            f"{settings.head.name}."
        )
    if open_ports:
        found.append(
            f"{settings.head.name} has to do with NFS of others: its ports {', '.join(map(str, open_ports))} are open "
            "on its own networks as they were before. The share is exported to the addresses of members alone."
        )
    made, age = restored
    if made:
        when = datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%d %H:%M UTC")
        found.append(
            f"{settings.head.name} was restored from the backup of {when}, which was {age // 3600} h "
            f"{age // 60 % 60} min old then: what was submitted or changed after it is lost."
        )
    return found


def warnings_about_pool(head: str, computes: bool) -> list[str]:
    """Return a sentence for each thing about a pool, whose machines may be of others than its cluster's.

    head       the head node's name
    computes   whether it runs jobs
    """
    if not computes:
        return []
    return [
        f"The head node {head} runs jobs: whoever is root of one of this pool's machines can be root of it, and so of "
        "the cluster (tailrack:head.compute of the cluster's stack)."
    ]
