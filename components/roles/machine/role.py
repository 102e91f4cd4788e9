"""The machine itself: Debian or Ubuntu with systemd, and root."""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import whole
from components.roles.role import Role


def role(_settings: ClusterSettings) -> Role:
    """Return the role, which checks the machine and adds nothing to it."""
    size = {"cpus": whole(1, 2**16), "memory_mb": whole(1, 2**31)}
    return Role("machine", facts={"check": size, "pod_check": size}, on_pods=("node", "register"))
