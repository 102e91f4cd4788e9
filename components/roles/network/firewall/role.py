"""The firewall: the cluster's ports are open on the tailnet's interface and on loopback only.

The rules are in a separate nftables table. They do not read or change other rules and close no other port. They are
loaded before the daemons start, also at boot. The kernel does not assign these ports to programs that ask for any free
port, as jobs do on a site's fabric, and lets only the account of a port's daemon bind it (Role.holders).
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template, unit

UNIT, PROGRAM = "tailrack-firewall.service", "hold-ports"


def role(settings: ClusterSettings) -> Role:
    """Return the role; order.py adds the ports and their accounts from all roles (Role.ports, Role.holders)."""
    return Role(
        "firewall",
        after=("tailnet",),
        packages={"machine": ("nftables",)},
        values={"head": settings.head.name},
        files={
            "machine": (
                File(f"/usr/local/lib/tailrack/{PROGRAM}", template("firewall", PROGRAM), mode="0755"),
                unit("firewall", UNIT),
            )
        },
    )
