"""Names of all machines resolve on all machines, by what the head node keeps of them (docs/decisions/0020).

A machine goes by its node's name, and all names of the cluster mean tailnet addresses: Slurm's daemons compare the
host name with slurm.conf and bind to what it resolves to.
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template

PROGRAM, UNITS = "tailrack-names", ("tailrack-names.service", "tailrack-names-follow.service")


def role(_settings: ClusterSettings) -> Role:
    """The same on every machine, the head node included. The machine's own DNS stays as it is."""
    return Role(
        "names",
        after=("tailnet",),
        files={
            "machine": (
                File(f"/usr/local/sbin/{PROGRAM}", template("names", PROGRAM), mode="0755"),
                *(File(f"/etc/systemd/system/{unit}", template("names", unit)) for unit in UNITS),
            )
        },
    )
