"""The cluster's ports are open on the tailnet's interface and on loopback alone, whatever daemon listens where.

Rules of its own in an nftables table of its own: other people's rules are neither read nor changed, and nothing else
on the machine is closed. Loaded before the daemons start, at boot too. And the kernel gives none of them to a program
that asks for any port, as those of jobs do on a site's fabric, nor to an account whose port it is not (Role.holders).
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template

UNIT, PROGRAM = "tailrack-firewall.service", "hold-ports"


def role(settings: ClusterSettings) -> Role:
    """Return the role; order.py adds which ports, and whose they are, as the roles say (Role.ports, Role.holders)."""
    return Role(
        "firewall",
        after=("tailnet",),
        packages={"machine": ("nftables",)},
        values={"FIREWALL_HEAD": settings.head.name},
        files={
            "machine": (
                File(f"/usr/local/lib/tailrack/{PROGRAM}", template("firewall", PROGRAM), mode="0755"),
                File(f"/etc/systemd/system/{UNIT}", template("firewall", UNIT)),
            )
        },
    )
