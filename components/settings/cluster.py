"""The sections `cluster` and `head`, with `head.user_limits`."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.problems import Report
from components.settings.section import Section, key, named, number, yes_no
from components.settings.types import FreeText, NodeName, Whole, check_name

_RISK = (
    "root of any compute node has Slurm's key and can become root of every machine with slurmd, so also of a "
    "head node that runs jobs, with its share, its SSH authority and, at a local site, your account"
)


class Cluster(Section):
    """The cluster."""

    name: Annotated[str, Field(max_length=40), AfterValidator(check_name)] = named(
        "Slurm's ClusterName, at most 40 characters; you cannot change it later",
        breaks="Slurm stores its state and accounts under this name",
        fix="write a name such as lab",
    )
    munge_generation: FreeText = key(
        "change this text to give every node a new munge key",
        wants="a short text",
        breaks="only a change of the text makes a new munge key",
        fix='write any text, such as "2"',
        min_length=1,
        default="1",
    )
    ssh_generation: FreeText = key(
        "change this text to create a new SSH certificate authority and a new certificate for every machine",
        wants="a short text",
        breaks="only a change of the text makes a new SSH authority",
        fix='write any text, such as "2"',
        min_length=1,
        default="1",
    )
    repair: dict[str, FreeText] = key(
        "a text per node name; change a node's text to run all its steps again, for example after a manual repair",
        wants="a mapping from a node's name to a short text",
        breaks="no step would run again",
        fix='write {b1: "2026-11-21"}',
        default={},
    )


def check_head(head: Head, report: Report) -> None:
    """Report a head node that runs jobs although the config does not accept the risk."""
    if head.compute and not head.accept_root_risk:
        fix = "write false or remove the key, or write accept_root_risk: true beside it to accept this"
        report.add(report.at(head, "compute"), "true does not accept the risk", _RISK, fix)


class UserLimits(Section):
    """Limits for all processes of one user on the head node together. Jobs, root and tailrack's login have none."""

    enabled: bool = yes_no(
        "limit what each user can take of the head node, so that no one can stop slurmctld "
        "([day 2](day-2.md#users-on-the-head-node)); false sets no limits",
        default=True,
    )
    memory_percent: Whole = number(
        "percent of the head node's memory that all processes of a user may use; beyond that the kernel ends the "
        "largest of them",
        5,
        100,
        breaks="users could not log in, or one user could use up the head node's memory",
        default=50,
    )
    cpu_percent: Whole = number(
        "percent of the head node's CPUs that all processes of a user may use; 100: no limit",
        5,
        100,
        breaks="users could not log in, or one user could use all CPUs",
        default=75,
    )
    tasks: Whole = number(
        "processes and threads of a user; beyond that no new ones start",
        128,
        1_000_000,
        breaks="an editor's server alone has more than a hundred",
        default=4096,
    )


class Head(Section):
    """The head node: it runs slurmctld, serves the share, and accepts log-ins."""

    name: NodeName = named(
        "the head node's name. At a `lab` site it is one more container, at a `hosts` site one of the hosts, at a "
        "`local` site this machine",
        breaks="Slurm, the tailnet and every job use this name",
        fix="write a name such as head",
        default="head",
    )
    site: str = key(
        "the head node's site",
        wants="the name of a site",
        breaks="the head node would have no site",
        fix="write the name of one of the sites",
    )
    restore_from: str | None = key(
        "restore the head node on a new machine from a backup: `latest`, or a backup's id "
        "([day-2.md](day-2.md#a-head-node-that-is-lost))",
        wants="latest, or the id of a backup in hexadecimal digits",
        breaks="the head node would start empty, without its jobs and accounts",
        fix="write latest",
        pattern=r"^(latest|[0-9a-f]{8,64})$",
        default=None,
    )
    compute: bool = yes_no("true runs jobs on the head node too, with `accept_root_risk`", False)
    accept_root_risk: bool = yes_no(
        "true accepts that root of any compute node can become root of a head node that runs jobs "
        "([security.md](security.md#the-trust-domain))",
        default=False,
    )
    user_limits: UserLimits = key("limits for each user's processes on the head node", default=UserLimits())
