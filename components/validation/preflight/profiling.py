"""Check whether the loaded NVIDIA driver does what `tailrack:profiling` says. Role profiling writes its option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from components.validation.preflight.adapters import text_of
from components.validation.preflight.findings import Finding, finding

PROFILING = "profiling"
# Paths below the root.
DRIVER_OPTION = "etc/modprobe.d/tailrack-profiling.conf"
OFF_SINCE = "var/lib/tailrack/profiling-off-since"
PARAMETERS = "proc/driver/nvidia/params"
BOOT_ID = "proc/sys/kernel/random/boot_id"
_RESTART = "drain the node and restart it"


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
