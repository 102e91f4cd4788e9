"""`sll` on the head node: a live view of jobs for all users, which each viewer's own account may see."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher
from components.roles.role import File, Role

COMMAND = "/usr/local/bin/sll"


def role(settings: ClusterSettings) -> Role:
    """Return the role."""
    return Role(
        "sll",
        after=("tailrack_command",),
        packages={"services": ("python3",)},
        files={"services": (File(COMMAND, launcher("sll"), "0755"),)},
    )
