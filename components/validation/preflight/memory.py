"""A node's own memory: what the kernel counted of errors in it, and what is taken although no job runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from components.validation.preflight.adapters import text_of, whole_number
from components.validation.preflight.findings import Finding, finding

MEMORY = "memory"
MANY_CORRECTED = 1000
# Of all memory, on a node without a job.
MOST_IDLE_SHARE = 0.5


def check_errors(root: Path = Path("/")) -> Iterator[Finding]:
    """Errors that ECC could not correct, and many that it could, by memory controller (EDAC); of this boot."""
    for controller in sorted((root / "sys/devices/system/edac/mc").glob("mc[0-9]*")):
        wrong, corrected = (whole_number(text_of(controller / f"{kind}_count")) or 0 for kind in ("ue", "ce"))
        if wrong:
            yield finding(
                "error", MEMORY, f"{controller.name}: {wrong} errors that ECC could not correct since the start",
                "'edac-util -v', 'ipmitool sel list' or 'journalctl -k | grep -i edac' names the module; have it "
                "replaced, then restart the node",
            )  # fmt: skip
        elif corrected > MANY_CORRECTED:
            yield finding(
                "warning", MEMORY, f"{controller.name}: {corrected} errors that ECC has corrected since the start",
                "'edac-util -v' names the module; have it replaced before it gets worse",
            )  # fmt: skip


def check_idle(jobs: int | None, root: Path = Path("/")) -> Iterator[Finding]:
    """Memory that is taken while no job runs; `jobs` is how many do, None where nobody knows."""
    text = text_of(root / "proc/meminfo")
    found = {name: int(kib) for name, kib in re.findall(r"^(\w+): +(\d{1,15}) kB$", text, re.MULTILINE)}
    total, free = found.get("MemTotal", 0), found.get("MemAvailable", 0)
    if jobs == 0 and total and total - free > MOST_IDLE_SHARE * total:
        yield finding(
            "warning", MEMORY, f"{(total - free) / 2**20:.0f} of {total / 2**20:.0f} GiB are taken and no job runs",
            "'ps -eo user,pid,rss,cmd --sort=-rss | head' and 'df -h /dev/shm /tmp' on the node say by whom",
        )  # fmt: skip
