"""What a cluster is built from, apart from its machines. Plain values: no Pulumi config, no cloud."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi

from components.config_files.slurm import PartitionEntry


@dataclass(frozen=True)
class User:
    """A user with the same uid and gid on every node."""

    name: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Share:
    """The directory the head node exports, and where nodes mount it. Absolute paths."""

    path: str
    mount: str


@dataclass(frozen=True)
class Tailnet:
    """control_url: empty for Tailscale's own. auth_key: secret, empty where the control server asks for none."""

    control_url: pulumi.Input[str] = ""
    auth_key: pulumi.Input[str] = ""
    tag: str = ""


@dataclass(frozen=True)
class ClusterSettings:
    """settings of one cluster.

    cgroups           True or False for the whole cluster, None to take what the head node offers
    job_limit_seconds how long a job may go on when its node leaves, before it is requeued
    munge_generation  another text makes another munge key
    """

    name: str
    users: tuple[User, ...]
    share: Share
    tailnet: Tailnet
    slurm_settings: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple[PartitionEntry, ...] = ()
    cgroups: bool | None = None
    job_limit_seconds: int = 300
    munge_generation: str = "1"

    @property
    def user_lines(self) -> list[str]:
        """`name uid gid`, as the scripts read them."""
        return [f"{user.name} {user.uid} {user.gid}" for user in self.users]
