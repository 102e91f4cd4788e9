"""Let users read GPU counters and use perf, or take that back.

The driver reads its option only when it is loaded. Until then the health check reports the node
(components/validation/preflight/profiling.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, kernel
from components.node.log import note
from components.node.run import succeeds
from components.node.step.step import Step
from components.roles.profiling.remove import (
    BEFORE,
    DRIVER_OPTION,
    OFF_SINCE,
    PARANOID,
    SYSCTL,
    WANTED,
    remove_profiling,
)
from components.validation.preflight.profiling import PARAMETERS, is_restricted


@dataclass(frozen=True)
class ProfilingValues:
    """Whether users may use profilers, and the node's number of GPUs."""

    profiling_enabled: bool
    node_gpu_count: int


def compute(step: Step, values: ProfilingValues) -> None:
    """Write the settings, or remove them."""
    if not values.profiling_enabled:
        remove_profiling()
        return
    files.remove(OFF_SINCE)
    _allow_perf()
    if values.node_gpu_count:
        files.write(
            DRIVER_OPTION,
            "# Written by tailrack (tailrack:profiling).\noptions nvidia NVreg_RestrictProfilingToAdminUsers=0",
        )
    else:
        files.remove(DRIVER_OPTION)
    if values.node_gpu_count and is_restricted(kernel.read(f"/{PARAMETERS}")):
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
