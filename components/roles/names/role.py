"""Names of all nodes resolve on all nodes, without a list of them anywhere (docs/decisions/0004).

tailscaled answers for every machine of the tailnet at 100.100.100.100, and systemd-resolved asks it for names without
a dot. A machine's own name means its tailnet address, because Slurm's daemons bind to what their own name resolves to.
"""

from __future__ import annotations

from components.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template

PROGRAM, UNIT = "tailrack-names", "tailrack-names.service"


def role(_settings: ClusterSettings) -> Role:
    """The same on every machine, the head node included."""
    return Role(
        "names",
        packages={"machine": ("systemd-resolved", "libnss-resolve")},
        files={
            "machine": (
                File(f"/usr/local/sbin/{PROGRAM}", template("names", PROGRAM), mode="0755"),
                File(f"/etc/systemd/system/{UNIT}", template("names", UNIT)),
            )
        },
        # Else every machine of the provider's network is asked for a name without a dot: anybody there could answer,
        # and a name that nobody has fails after seconds instead of at once.
        values={"resolved_conf": template("names", "resolved.conf")},
    )
