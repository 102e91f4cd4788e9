"""The section `head.user_limits`: the share of the head node that one user may take."""

from components.settings.section import Section, number, yes_no
from components.settings.types import Whole


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
