"""Checks of the node's settings for jobs: pinned memory, /dev/shm, device files, a driver, the clock and the memory.

A time service must keep the node's clock: munge and the share need it.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from components.validation.preflight.adapters import text_of, whole_number
from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.neighbour import CLOCK

MEMLOCK, SHARED, DEVICES, CONFINED = "memlock", "/dev/shm", "device files", "isolation"  # noqa: S108
LEAST_SHARED = 2**29
MEMORY = "memory"
MANY_CORRECTED = 1000
# Share of the memory that may be in use without a job.
MOST_IDLE_SHARE = 0.5
PROFILING = "profiling"
# Paths below the root.
DRIVER_OPTION = "etc/modprobe.d/tailrack-profiling.conf"
OFF_SINCE = "var/lib/tailrack/profiling-off-since"
PARAMETERS = "proc/driver/nvidia/params"
BOOT_ID = "proc/sys/kernel/random/boot_id"
_RESTART = "drain the node and restart it"


def check_memlock(limit: int, needed: bool) -> Iterator[Finding]:
    """Check the memory that a process may pin, in bytes or RLIM_INFINITY; RDMA and GPUDirect need it unlimited."""
    if needed and limit != resource.RLIM_INFINITY:
        yield finding(
            "error", MEMLOCK, f"a job may pin only {limit // 1024} KiB",
            "set LimitMEMLOCK=infinity in slurmd's unit and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
        )  # fmt: skip


def check_shared(free: int, gpus: int) -> Iterator[Finding]:
    """Check the free bytes in /dev/shm, where NCCL's ranks of one node exchange data."""
    if gpus > 1 and free < LEAST_SHARED:
        yield finding(
            "warning", SHARED, f"only {free // 2**20} MiB are free for {gpus} GPUs",
            "remove files that jobs left in it, or 'mount -o remount,size=50% /dev/shm' (or recreate the container)",
        )  # fmt: skip


def free_bytes(path: Path) -> int:
    """Return the bytes that a user may still write."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def check_devices(promised: int, root: Path = Path("/")) -> Iterator[Finding]:
    files = [path for path in (root / "dev").glob("nvidia[0-9]*") if path.name[6:].isdecimal()]
    if len(files) < promised:
        yield finding(
            "error", DEVICES, f"{len(files)} of {promised} GPUs have a device file",
            "run 'systemctl restart tailrack-gpu' and see 'journalctl -u tailrack-gpu' on the node",
        )  # fmt: skip


def check_driver(on_the_bus: list[str], promised: int, container: bool, root: Path = Path("/")) -> Iterator[Finding]:
    """Check for GPUs without a driver. In a container the PCI bus shows the host's GPUs."""
    if on_the_bus and not promised and not container and not (root / "proc/driver/nvidia/version").exists():
        yield finding(
            "warning", DEVICES, f"{len(on_the_bus)} NVIDIA GPUs without a driver ({', '.join(on_the_bus[:8])})",
            "install NVIDIA's driver; then change the node's value in cluster.repair and run make up to find the GPUs",
        )  # fmt: skip


def check_confined(cgroups: str, gpus: int) -> Iterator[Finding]:
    """Check that Slurm keeps jobs from other jobs' GPUs: then this process is in a job's cgroup (/proc/self/cgroup)."""
    if gpus and "/job_" not in cgroups:
        yield finding(
            "info", CONFINED, "jobs can use each other's GPUs: Slurm does not run them in a cgroup",
            "boot with cgroup v2 and remove tailrack:slurm.cgroups from the config (docs/gpus.md)",
        )  # fmt: skip


def check_synchronized(synchronized: str, container: bool) -> Iterator[Finding]:
    """Check `timedatectl show -p NTPSynchronized --value`; a container has its host's clock and cannot report it."""
    if synchronized.strip() == "no" and not container:
        yield finding(
            "warning", CLOCK, "no time service keeps this node's clock",
            "see 'timedatectl timesync-status' or 'chronyc tracking' on the node; allow outgoing NTP (UDP port 123)",
        )  # fmt: skip


def check_memory_errors(root: Path = Path("/")) -> Iterator[Finding]:
    """Check the errors since boot by memory controller (EDAC): uncorrected ones, and many corrected ones."""
    for controller in sorted((root / "sys/devices/system/edac/mc").glob("mc[0-9]*")):
        wrong, corrected = (whole_number(text_of(controller / f"{kind}_count")) or 0 for kind in ("ue", "ce"))
        if wrong:
            yield finding(
                "error", MEMORY, f"{controller.name}: {wrong} errors since boot that ECC could not correct",
                "find the memory module with 'edac-util -v', 'ipmitool sel list' or 'journalctl -k | grep -i edac'; "
                "replace it, then restart the node",
            )  # fmt: skip
        elif corrected > MANY_CORRECTED:
            yield finding(
                "warning", MEMORY, f"{controller.name}: {corrected} errors since boot that ECC corrected",
                "find the memory module with 'edac-util -v' and replace it before it gets worse",
            )  # fmt: skip


def check_idle_memory(jobs: int | None, root: Path = Path("/")) -> Iterator[Finding]:
    """Check for memory in use while no job runs; `jobs` is the number of running jobs, None if unknown."""
    text = text_of(root / "proc/meminfo")
    values = {name: int(kib) for name, kib in re.findall(r"^(\w+): +(\d{1,15}) kB$", text, re.MULTILINE)}
    total, free = values.get("MemTotal", 0), values.get("MemAvailable", 0)
    if jobs == 0 and total and total - free > MOST_IDLE_SHARE * total:
        yield finding(
            "warning", MEMORY,
            f"{(total - free) / 2**20:.0f} of {total / 2**20:.0f} GiB are in use although no job runs",
            "see 'ps -eo user,pid,rss,cmd --sort=-rss | head' and 'df -h /dev/shm /tmp' on the node",
        )  # fmt: skip


def is_restricted(parameters: str) -> bool | None:
    """Return whether only root reads GPU counters, from the driver's parameters; None if they do not say so."""
    found = re.search(r"^RmProfilingAdminOnly: (\d+)$", parameters, re.MULTILINE)
    return found and found[1] != "0"


def check_profiling(root: Path = Path("/")) -> Iterator[Finding]:
    """Report a driver that was loaded before the setting changed."""
    restricted = is_restricted(text_of(root / PARAMETERS))
    if (root / DRIVER_OPTION).exists():
        if restricted:
            yield finding(
                "info", PROFILING, "users cannot read GPU counters yet: the driver is still loaded as before",
                f"{_RESTART}; if that does not help, run 'update-initramfs -u' and restart it again",
            )  # fmt: skip
    elif restricted is False and text_of(root / OFF_SINCE).strip() == text_of(root / BOOT_ID).strip():
        yield finding(
            "info", PROFILING, "users can still read GPU counters: the driver is still loaded as before", _RESTART
        )
