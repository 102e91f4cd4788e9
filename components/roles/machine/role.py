"""The machine itself: Debian or Ubuntu with systemd, and root."""

from __future__ import annotations

from components.node.minute import PROGRAM, SERVICE, TIMER
from components.node.systemd import UNITS
from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import whole
from components.roles.program import launcher
from components.roles.role import File, Role, template


def role(_settings: ClusterSettings) -> Role:
    """Return the role, which checks the machine and gives it the program that starts the tasks of roles."""
    size = {"cpus": whole(1, 2**16), "memory_mb": whole(1, 2**31)}
    units = (File(f"{UNITS}/{unit}", template("machine", unit)) for unit in (SERVICE, TIMER))
    return Role(
        "machine",
        facts={"check": size, "pod_check": size},
        files={"machine": (File(PROGRAM, launcher("minute"), mode="0755"), *units)},
        on_pods=("node", "register"),
    )
