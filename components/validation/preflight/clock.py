"""Check that a time service keeps the node's clock: munge and the share need it."""

from __future__ import annotations

from collections.abc import Iterator

from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.neighbour import CLOCK


def check_synchronized(synchronized: str, container: bool) -> Iterator[Finding]:
    """Check `timedatectl show -p NTPSynchronized --value`; a container has its host's clock and cannot report it."""
    if synchronized.strip() == "no" and not container:
        yield finding(
            "warning", CLOCK, "no time service keeps this node's clock",
            "see 'timedatectl timesync-status' or 'chronyc tracking' on the node; allow outgoing NTP (UDP port 123)",
        )  # fmt: skip
