"""Checks of a node's settings for jobs, its clock and memory, and of versions with published security holes.

A time service must keep the node's clock: munge and the share need it. An old version is only info and never drains a
node. versions.csv is as old as this release of tailrack: it contains only what the named bulletins say, NVIDIA's of
January (5747), May (5821) and September 2026 (5861). Enroot, Pyxis and the kernel have no row: no bulletin for Enroot
and Pyxis was found, and distributions fix kernels under their own versions.
"""

from __future__ import annotations

import gzip
import os
import re
import resource
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from pkgutil import get_data
from typing import NamedTuple

from components.validation.model import table
from components.validation.preflight.adapters import whole_number
from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.neighbour import CLOCK
from components.validation.this_node import text_of

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
        remedy = "set LimitMEMLOCK=infinity in slurmd's unit and PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"
        yield finding("error", MEMLOCK, f"a job may pin only {limit // 1024} KiB", remedy)


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
        remedy = "run 'systemctl restart tailrack-gpu' and see 'journalctl -u tailrack-gpu' on the node"
        yield finding("error", DEVICES, f"{len(files)} of {promised} GPUs have a device file", remedy)


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
        remedy = "boot with cgroup v2 and remove tailrack:slurm.cgroups from the config (docs/gpus.md)"
        yield finding("info", CONFINED, "jobs can use each other's GPUs: Slurm does not run them in a cgroup", remedy)


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
            seen = f"{controller.name}: {corrected} errors since boot that ECC corrected"
            remedy = "find the memory module with 'edac-util -v' and replace it before it gets worse"
            yield finding("warning", MEMORY, seen, remedy)


def check_idle_memory(jobs: int | None, root: Path = Path("/")) -> Iterator[Finding]:
    """Check for memory in use while no job runs; `jobs` is the number of running jobs, None if unknown."""
    text = text_of(root / "proc/meminfo")
    values = {name: int(kib) for name, kib in re.findall(r"^(\w+): +(\d{1,15}) kB$", text, re.MULTILINE)}
    total, free = values.get("MemTotal", 0), values.get("MemAvailable", 0)
    if jobs == 0 and total and total - free > MOST_IDLE_SHARE * total:
        seen = f"{(total - free) / 2**20:.0f} of {total / 2**20:.0f} GiB are in use although no job runs"
        remedy = "see 'ps -eo user,pid,rss,cmd --sort=-rss | head' and 'df -h /dev/shm /tmp' on the node"
        yield finding("warning", MEMORY, seen, remedy)


def is_restricted(parameters: str) -> bool | None:
    """Return whether only root reads GPU counters, from the driver's parameters; None if they do not say so."""
    found = re.search(r"^RmProfilingAdminOnly: (\d+)$", parameters, re.MULTILINE)
    return found and found[1] != "0"


def check_profiling(root: Path = Path("/")) -> Iterator[Finding]:
    """Report a driver that was loaded before the setting changed."""
    restricted = is_restricted(text_of(root / PARAMETERS))
    if (root / DRIVER_OPTION).exists():
        if restricted:
            seen = "users cannot read GPU counters yet: the driver is still loaded as before"
            remedy = f"{_RESTART}; if that does not help, run 'update-initramfs -u' and restart it again"
            yield finding("info", PROFILING, seen, remedy)
    elif restricted is False and text_of(root / OFF_SINCE) == text_of(root / BOOT_ID):
        seen = "users can still read GPU counters: the driver is still loaded as before"
        yield finding("info", PROFILING, seen, _RESTART)


VERSIONS = "versions"
_MOST_BYTES = 32_000_000
Version = tuple[int, ...]


class Fix(NamedTuple):
    """The release that closes a hole of a product: a row of versions.csv, which has the newest fix of each branch.

    parts    how many numbers of a version name its branch; each branch has its own fixes
    source   the address of the bulletin
    """

    product: str
    parts: int
    release: str
    hole: str
    source: str


@cache
def _fixes() -> Sequence[Fix]:
    rows = table(get_data("components.validation.preflight", "versions.csv"))
    return [Fix(row["product"], int(row["parts"]), row["release"], row["hole"], row["source"]) for row in rows]


def missing(product: str, version: str) -> Fix | None:
    """Return the fix that a version lacks: its branch's, or the newest if its branch gets no fixes."""
    own, fixes = numbers(version), [fix for fix in _fixes() if fix.product == product]
    branch = [fix for fix in fixes if numbers(fix.release)[: fix.parts] == own[: fix.parts]]
    newest = max(branch or fixes, key=lambda fix: numbers(fix.release))
    return newest if own and own < numbers(newest.release) else None


DRIVER, TOOLKIT, SLURM = "NVIDIA driver", "NVIDIA Container Toolkit", "Slurm"
# Packages with upstream's versions. The library has the toolkit's version, and Enroot uses it without the toolkit.
UPSTREAM = {"nvidia-container-toolkit": TOOLKIT, "libnvidia-container-tools": TOOLKIT, "slurm-smd-slurmd": SLURM}
# Packages of distributions, which close holes without a new version and name them in their changelog.
OF_DISTRIBUTIONS = {"slurmd": SLURM}


def numbers(version: str) -> Version:
    """Return the numbers at the start of a version, such as (24, 11, 5) for 1:24.11.5-4."""
    found = re.match(r"(?:\d+:)?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()


def installed(status: str) -> Mapping[str, str]:
    """Return the versions of installed packages that the tables name, from dpkg's status file."""
    versions = {}
    for name in (*UPSTREAM, *OF_DISTRIBUTIONS):
        _, begin, rest = f"\n{status}".partition(f"\nPackage: {name}\n")
        package = rest.partition("\n\n")[0]
        version = re.search(r"^Version: (\S+)$", package, re.MULTILINE)
        if begin and version and re.search(r"^Status: \S+ ok installed$", package, re.MULTILINE):
            versions[name] = version[1]
    return versions


def check_versions(root: Path = Path("/")) -> Iterator[Finding]:
    """Report each program that lacks the fix of a published hole."""
    if driver := text_of(root / "sys/module/nvidia/version"):
        yield from _lacking(DRIVER, driver)
    for name, version in installed(text_of(root / "var/lib/dpkg/status")).items():
        if name in UPSTREAM:
            yield from _lacking(UPSTREAM[name], version)
        elif fix := missing(OF_DISTRIBUTIONS[name], version):
            changelog = _changelog(root, name)
            if changelog and fix.hole not in changelog:
                yield from _lacking(OF_DISTRIBUTIONS[name], version)


def _lacking(product: str, version: str) -> Iterator[Finding]:
    if fix := missing(product, version):
        seen = f"{product} {version} is older than {fix.release}, which closes {fix.hole} ({fix.source})"
        yield finding("info", VERSIONS, seen, "update it (docs/day-2.md, updates)")


def _changelog(root: Path, package: str) -> str:
    """Return a package's changelog; empty without one, as in small images."""
    try:
        with gzip.open(root / "usr/share/doc" / package / "changelog.Debian.gz") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, EOFError):
        return ""
