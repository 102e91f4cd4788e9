"""Remove this role from a machine; the driver stays, and its daemon gets its old state."""

from __future__ import annotations

from components.node import files, systemd
from components.node.run import run
from components.node.step.step import STATE_DIR

PROGRAM, HEALTH_PROGRAM, ROCE_PROGRAM = (f"/usr/local/sbin/tailrack-{name}" for name in ("gpu", "health", "roce"))
UNIT, ROCE_UNIT = "tailrack-gpu.service", "tailrack-roce.service"
# This file exists if the daemon was off before the cluster.
PERSISTENCE_WAS_OFF = f"{STATE_DIR}/persistence-was-off"
_HEALTH = "/run/tailrack/health.json"


def remove_roce_unit() -> None:
    """Let RoCE ports be as they are."""
    systemd.retire(ROCE_UNIT)
    files.remove(ROCE_PROGRAM)


def remove_gpu_units() -> None:
    """Remove the setup of GPUs at boot, and the collection of their health."""
    systemd.retire(UNIT)
    for path in (PROGRAM, HEALTH_PROGRAM, _HEALTH):
        files.remove(path)
    if files.exists(PERSISTENCE_WAS_OFF):
        run("systemctl", "disable", "-q", "--now", "nvidia-persistenced")
        files.remove(PERSISTENCE_WAS_OFF)
