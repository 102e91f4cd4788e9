"""Let users run profilers on GPUs.

The driver reads its option only when it is loaded. Until then the health check reports the node
(components/validation/preflight/node.py).
"""

from components.node import files, kernel
from components.node.log import STATE_DIR, note
from components.node.run import succeeds
from components.node.step.step import Step
from components.validation.preflight import node
from components.validation.preflight.node import PARAMETERS, is_restricted

DRIVER_OPTION = f"/{node.DRIVER_OPTION}"
# The ID of the boot in which the option was removed: the loaded driver keeps it.
OFF_SINCE = f"/{node.OFF_SINCE}"
SYSCTL = "/etc/sysctl.d/91-tailrack-profiling.conf"
PARANOID = "/proc/sys/kernel/perf_event_paranoid"
# 2: own processes, without the kernel's part of them; 1: with it; 0: all processes of a CPU. Debian has 3, Ubuntu 4.
WANTED = 2
# The value before the cluster.
BEFORE = f"{STATE_DIR}/perf-event-paranoid"
TRACES = (DRIVER_OPTION, SYSCTL, BEFORE)


def leave(step: Step) -> None:
    """Remove the settings, and give perf its old value unless somebody changed it."""
    if files.exists(DRIVER_OPTION):
        files.write(OFF_SINCE, kernel.read(f"/{node.BOOT_ID}").strip())
        files.remove(DRIVER_OPTION)
    before = files.read(BEFORE)
    if before is not None and kernel.read(PARANOID).strip() == str(WANTED):
        kernel.write(PARANOID, before)
    files.remove(SYSCTL)
    files.remove(BEFORE)


def compute(step: Step, profiling_enabled: bool, node_gpu_count: int) -> None:
    """Write the settings, or remove them."""
    if not profiling_enabled:
        leave(step)
        return
    files.remove(OFF_SINCE)
    _allow_perf()
    if node_gpu_count:
        files.write(
            DRIVER_OPTION,
            "# Written by tailrack (tailrack:profiling).\noptions nvidia NVreg_RestrictProfilingToAdminUsers=0",
        )
    else:
        files.remove(DRIVER_OPTION)
    if node_gpu_count and is_restricted(kernel.read(f"/{PARAMETERS}")):
        note(f"users can read GPU counters after the next restart of {step.host}, because the driver is already loaded")


def _allow_perf() -> None:
    """Let users measure their own processes. A kernel that allows more stays as it is."""
    if succeeds("systemd-detect-virt", "-cq"):
        note("perf stays as the machine below this container allows it")
        return
    current = kernel.read(PARANOID).strip()
    if not current.lstrip("-").isdigit() or (int(current) <= WANTED and not files.exists(BEFORE)):
        return
    if not files.exists(BEFORE):
        files.write(BEFORE, current)
    kernel.write(PARANOID, f"{WANTED}\n")
    files.write(SYSCTL, f"# Written by tailrack (tailrack:profiling).\nkernel.perf_event_paranoid = {WANTED}")
