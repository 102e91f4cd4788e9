"""Take the permission to use profilers back."""

from __future__ import annotations

from components.node import files, kernel
from components.node.step.step import STATE_DIR
from components.validation.preflight import profiling

DRIVER_OPTION = f"/{profiling.DRIVER_OPTION}"
# The ID of the boot in which the option was removed: the loaded driver keeps it.
OFF_SINCE = f"/{profiling.OFF_SINCE}"
SYSCTL = "/etc/sysctl.d/91-tailrack-profiling.conf"
PARANOID = "/proc/sys/kernel/perf_event_paranoid"
# 2: own processes, without the kernel's part of them; 1: with it; 0: all processes of a CPU. Debian has 3, Ubuntu 4.
WANTED = 2
# The value before the cluster.
BEFORE = f"{STATE_DIR}/perf-event-paranoid"


def remove_profiling() -> None:
    """Remove the settings, and give perf its old value unless somebody changed it."""
    if files.exists(DRIVER_OPTION):
        files.write(OFF_SINCE, kernel.read(f"/{profiling.BOOT_ID}").strip())
        files.remove(DRIVER_OPTION)
    before = files.read(BEFORE)
    if before is not None and kernel.read(PARANOID).strip() == str(WANTED):
        kernel.write(PARANOID, before)
    files.remove(SYSCTL)
    files.remove(BEFORE)
