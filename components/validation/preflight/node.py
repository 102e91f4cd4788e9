"""What a job meets on a node itself: pinned memory, /dev/shm, device files, a driver."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

from components.validation.preflight.findings import Finding, finding

MEMLOCK, SHARED, DEVICES, CONFINED = "memlock", "/dev/shm", "device files", "isolation"  # noqa: S108
LEAST_SHARED = 2**29


def check_memlock(limit: int, needed: bool) -> Iterator[Finding]:
    """Memory that a process may pin, in bytes or RLIM_INFINITY; RDMA and GPUDirect need it unlimited."""
    if needed and limit != resource.RLIM_INFINITY:
        yield finding(
            "error", MEMLOCK, f"a job may pin {limit // 1024} KiB",
            "LimitMEMLOCK=infinity in slurmd's unit, and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
        )  # fmt: skip


def check_shared(free: int, gpus: int) -> Iterator[Finding]:
    """Bytes that are free in /dev/shm, where NCCL's ranks of one node meet."""
    if gpus > 1 and free < LEAST_SHARED:
        yield finding(
            "warning", SHARED, f"{free // 2**20} MiB are free for {gpus} GPUs",
            "remove what jobs left in it, or 'mount -o remount,size=50% /dev/shm' (a container's is made with it)",
        )  # fmt: skip


def free_bytes(path: Path) -> int:
    """Bytes that a user may still write."""
    about = os.statvfs(path)
    return about.f_bavail * about.f_frsize


def check_devices(promised: int, root: Path = Path("/")) -> Iterator[Finding]:
    """Device files of the GPUs that Slurm gives to jobs."""
    there = [path for path in (root / "dev").glob("nvidia[0-9]*") if path.name[6:].isdecimal()]
    if len(there) < promised:
        yield finding(
            "error", DEVICES, f"{len(there)} of {promised} GPUs have a device file",
            "'systemctl restart tailrack-gpu', and see 'journalctl -u tailrack-gpu' on the node",
        )  # fmt: skip


def check_driver(on_the_bus: list[str], promised: int, container: bool, root: Path = Path("/")) -> Iterator[Finding]:
    """GPUs that nobody can use. In a container the bus shows the host's."""
    if on_the_bus and not promised and not container and not (root / "proc/driver/nvidia/version").exists():
        yield finding(
            "warning", DEVICES, f"{len(on_the_bus)} NVIDIA GPUs without a driver ({', '.join(on_the_bus[:8])})",
            "install NVIDIA's driver; then change the node's text in cluster.repair and run up: it is found by itself",
        )  # fmt: skip


def check_confined(cgroups: str, gpus: int) -> Iterator[Finding]:
    """Whether Slurm keeps jobs from other jobs' GPUs: this process is in a job's cgroup then (/proc/self/cgroup)."""
    if gpus and "/job_" not in cgroups:
        yield finding(
            "info", CONFINED, "jobs are not kept from one another's GPUs: they run in no cgroup of Slurm's",
            "boot with cgroup v2 and leave tailrack:slurm.cgroups out (docs/gpus.md)",
        )  # fmt: skip
