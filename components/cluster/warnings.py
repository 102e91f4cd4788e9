"""Notes about the limits of a working cluster, shown to people. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from components.roles.cluster_settings import ClusterSettings

# By the answer of role user_limits.
_NOT_LIMITED = {
    "controllers": "systemd there controls no memory, CPU or tasks, as in a container",
    "logins": "SSH log-ins there do not run in systemd's user slices: install libpam-systemd on {head}, set UsePAM yes "
    "in its /etc/ssh/sshd_config and run up again",
}

_MOST_NAMES = 8


def warnings_about(
    settings: ClusterSettings,
    *,
    own_file_system: bool,
    open_ports: Sequence[int],
    user_limits: str,
    left_groups: Sequence[str],
    restored: Sequence[int | None],
) -> list[str]:
    """Return the notes about a cluster.

    own_file_system   whether the share has its own file system
    open_ports        ports of the cluster that the head node also needs for other NFS users
    user_limits       the reason why users on the head node are not limited (role user_limits); `none` if they are
    left_groups       groups whose folders stay on the share, although the config no longer has them (role user_groups)
    restored          time of the backup that the head node was restored from, and its age then, in seconds, if any
    """
    notes = []
    if not own_file_system:
        notes.append(
            f"{settings.storage.path} does not have its own file system: with forged NFS handles, root on a node can "
            f"read and change everything in the file system that contains it. Mount a disk or a volume at "
            f"{settings.storage.path} on {settings.storage.node or settings.head.name}."
        )
    if open_ports:
        notes.append(
            f"{settings.head.name} also uses NFS outside the cluster: its ports {', '.join(map(str, open_ports))} stay "
            "open on its other networks. The share is exported only to the addresses of members."
        )
    if reason := _NOT_LIMITED.get(user_limits):
        notes.append(
            f"One user can use up the memory and the processes of {settings.head.name}, because "
            f"{reason.format(head=settings.head.name)} (tailrack:head.user_limits)."
        )
    if left_groups:
        folders = " ".join(f"{settings.storage.path}/groups/{name}" for name in left_groups)
        notes.append(
            f"Folders of groups that tailrack:groups no longer has stay, and only root can open them: {folders} on "
            f"{settings.head.name}."
        )
    made_at, age = restored
    if made_at and age is not None:
        date = datetime.fromtimestamp(made_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        notes.append(
            f"{settings.head.name} was restored from the backup of {date}, which was {age // 3600} h "
            f"{age // 60 % 60} min old then. Jobs submitted and changes made after that backup are lost."
        )
    return notes


def warnings_about_logins(settings: ClusterSettings, unconfined: Sequence[str]) -> list[str]:
    """Return the notes about compute nodes where users need no job to log in, although the config asks for one.

    unconfined   names of compute nodes where cgroups do not confine jobs
    """
    if not settings.slurm.ssh_needs_job or not unconfined:
        return []
    more = f" and {len(unconfined) - _MOST_NAMES} more nodes" if len(unconfined) > _MOST_NAMES else ""
    return [
        f"Users can SSH without a job to {', '.join(unconfined[:_MOST_NAMES])}{more}, because Slurm does not confine "
        "jobs with cgroups there (tailrack:slurm.ssh_needs_job)."
    ]


def warnings_about_pool(head: str, computes: bool) -> list[str]:
    """Return the notes about a pool, whose machines may have other owners than the cluster's.

    head       the head node's name
    computes   whether the head node runs jobs
    """
    if not computes:
        return []
    return [
        f"The head node {head} runs jobs, so root on any machine of this pool can become root on the head node and "
        "in the whole cluster (tailrack:head.compute of the cluster's stack)."
    ]
