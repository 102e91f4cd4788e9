"""The cluster's ports are open on the tailnet's interface and on loopback alone, whatever daemon listens where.

Rules of its own in an nftables table of its own: other people's rules are neither read nor changed, and nothing else
on the machine is closed. Loaded before the daemons start, at boot too. And the kernel gives none of them to a program
that asks for any port, as those of jobs do on a site's fabric.
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template

RULES, UNIT = "tailrack.nft", "tailrack-firewall.service"


def role(_settings: ClusterSettings) -> Role:
    """Which ports, the roles say themselves (Role.ports)."""
    return Role(
        "firewall",
        after=("tailnet",),
        packages={"machine": ("nftables",)},
        files={"machine": (File(f"/etc/systemd/system/{UNIT}", template("firewall", UNIT)),)},
    )
