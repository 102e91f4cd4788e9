"""One tailnet that joins the machines, wherever they stand: tailscaled, a fixed host name, a tag."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, template

UNIT = "tailrack-tailnet.service"


def role(settings: ClusterSettings) -> Role:
    """Packages come before the tailnet; tailscale itself may come from a package source of its own (join.sh)."""
    return Role(
        "tailnet",
        after=("machine",),
        section=settings.tailnet,
        packages={"join": ("jq",)},
        files={"join": (File(f"/etc/systemd/system/{UNIT}", template("tailnet", UNIT)),)},
    )
