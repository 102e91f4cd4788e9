"""Checks of a node's memory: errors that the kernel counted, and memory in use although no job runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from components.validation.preflight.adapters import text_of, whole_number
from components.validation.preflight.findings import Finding, finding

MEMORY = "memory"
MANY_CORRECTED = 1000
# Share of the memory that may be in use without a job.
MOST_IDLE_SHARE = 0.5


def check_errors(root: Path = Path("/")) -> Iterator[Finding]:
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


def check_idle(jobs: int | None, root: Path = Path("/")) -> Iterator[Finding]:
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
