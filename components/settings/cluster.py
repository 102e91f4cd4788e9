"""The sections `cluster` and `head`, with `head.user_limits`."""

from typing import Annotated

from pydantic import Field

from components.settings.problems import Report, Stack
from components.settings.rules import check_sites
from components.settings.section import Section, key
from components.settings.types import FreeText, NodeName, PartitionName, Whole

_RISK = (
    "root of any compute node has Slurm's key and can become root of every machine with slurmd, so also of a "
    "head node that runs jobs, with its share, its SSH authority and, at a local site, your account"
)


class Cluster(Section):
    """The cluster."""

    name: Annotated[PartitionName, Field(max_length=40)] = key(fix="write a name such as lab")
    """Slurm's ClusterName, at most 40 characters; you cannot change it later."""
    munge_generation: FreeText = key(min_length=1, default="1")
    """Change this text to give every node a new munge key."""
    ssh_generation: FreeText = key(min_length=1, default="1")
    """Change this text to create a new SSH certificate authority and a new certificate for every machine."""
    repair: dict[str, FreeText] = key("a mapping from a node's name to a text", 'write {b1: "2026-11-21"}', default={})
    """A text per node name; change a node's text to run all its steps again, for example after a manual repair."""


class UserLimits(Section):
    """Limits for all processes of one user on the head node together. Jobs, root and tailrack's login have none."""

    enabled: bool = True
    """Limit each user on the head node, so that no one stops slurmctld ([day 2](day-2.md#users-on-the-head-node))."""
    memory_percent: Whole = key(ge=5, le=100, default=50)
    """Percent of the head node's memory for a user's processes; beyond that the kernel ends the largest of them."""
    cpu_percent: Whole = key(ge=5, le=100, default=75)
    """Percent of the head node's CPUs that all processes of a user may use; 100: no limit."""
    tasks: Whole = key(ge=128, le=1_000_000, default=4096)
    """Processes and threads of a user; beyond that no new ones start."""


class Head(Section):
    """The head node: it runs slurmctld, serves the share, and accepts log-ins."""

    name: NodeName = key(fix="write a name such as head", default="head")
    """The head node's name: of one more machine, or of one of the `hosts`; at a `local` site, of this machine."""
    site: str = key("the name of a site", "write the name of one of the sites")
    """The head node's site."""
    restore_from: str | None = key("latest or an id", "write latest", pattern="^(latest|[0-9a-f]{8,64})$", default=None)
    """[Restore the head node](day-2.md#a-head-node-that-is-lost) from a backup: `latest`, or a backup's id."""
    compute: bool = False
    """True runs jobs on the head node too, with `accept_root_risk`."""
    accept_root_risk: bool = False
    """Accept [the risk](security.md#the-trust-domain): root of a compute node can become root of this head node."""
    user_limits: UserLimits = UserLimits()

    def check(self, stack: Stack, report: Report) -> None:
        check_sites(self, "site", "the head node would have no site", stack, report)
        if self.compute and not self.accept_root_risk:
            fix = "write false or remove the key, or write accept_root_risk: true beside it to accept this"
            report.add((self, "compute"), "true does not accept the risk", _RISK, fix)
