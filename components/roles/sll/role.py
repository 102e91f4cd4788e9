"""`sll` on the head node: a live view of jobs for all users, and the reader that queries slurmctld for it."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher
from components.roles.role import Role, template


def role(settings: ClusterSettings) -> Role:
    """Return the role. With PrivateData in slurm.conf there is no reader, and each user's `sll` queries slurmctld."""
    private = next((str(value) for key, value in settings.slurm.settings.items() if key.lower() == "privatedata"), "")
    return Role(
        "sll",
        after=("tailrack_command",),
        packages={"services": ("python3",)},
        values={"SLL_SHARED": not private.strip('"') or private.strip('"').lower() == "none"},
        texts={
            "SLL_PROGRAM": launcher("sll"),
            "SLL_READER": launcher("sll-reader"),
            "SLL_SOCKET": template("sll", "tailrack-live.socket"),
            "SLL_SERVICE": template("sll", "tailrack-live.service"),
        },
    )
