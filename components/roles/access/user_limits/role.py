"""Limits for each user on the head node and on log-in nodes, and protection of daemons there from users."""

from components.node.systemd import UNITS
from components.roles.access.user_limits.host import PARENTS, PROTECTED, SLICE, daemon_text
from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import matching
from components.roles.role import File, Role


def role(settings: ClusterSettings) -> Role:
    """Return the role. It comes before slurm, which makes systemd read its drop-ins with its own."""
    limits, machines = settings.head.user_limits, ("head", "login")
    # The reason why users are not limited although the config wants it.
    facts = {"user_limits": matching("none|controllers|logins")}
    return Role(
        "user_limits",
        after=("share", "ssh_trust"),
        values={
            "enabled": limits.enabled,
            "memory_percent": limits.memory_percent,
            "cpu_percent": limits.cpu_percent,
            "tasks": limits.tasks,
        },
        files=dict.fromkeys(
            machines,
            (
                *(File(f"{UNITS}/{unit}.d/tailrack-protect.conf", daemon_text(unit)) for unit in PROTECTED),
                *(File(f"{UNITS}/{unit}.d/tailrack.conf", SLICE.format(percent=least)) for unit, least in PARENTS),
            ),
        ),
        facts=dict.fromkeys(machines, facts),
    )
