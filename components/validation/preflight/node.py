"""Checks of the node's settings for jobs: pinned memory, /dev/shm, device files, a driver."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from components.validation.preflight.findings import Finding, finding

MEMLOCK, SHARED, DEVICES, CONFINED = "memlock", "/dev/shm", "device files", "isolation"  # noqa: S108
LEAST_SHARED = 2**29


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
