"""Whether anything keeps a node's clock right: munge and the share go by it."""

from __future__ import annotations

from collections.abc import Iterator

from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.neighbour import CLOCK


def check_kept(said: str, container: bool) -> Iterator[Finding]:
    """`timedatectl show -p NTPSynchronized --value`; a container has its host's clock, and cannot say."""
    if said.strip() == "no" and not container:
        yield finding(
            "warning", CLOCK, "no time service keeps this node's clock",
            "'timedatectl timesync-status' or 'chronyc tracking' on the node; let NTP (UDP port 123) out",
        )  # fmt: skip
