"""What only shows when nodes are compared: drivers that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.gpus import DRIVER


def with_comparison(found: Mapping[str, Sequence[Finding]]) -> dict[str, list[Finding]]:
    """Findings by node, with one more for each node whose driver is not the one that most nodes have."""
    drivers = {
        node: item["seen"]
        for node, items in found.items()
        for item in items
        if item["check"] == DRIVER and item["severity"] == "info"
    }
    counted = Counter(drivers.values())
    # Of drivers that are equally common the newest is taken for the one that is meant.
    meant = max(counted, key=lambda version: (counted[version], _parts(version)), default="")
    more = {
        node: finding(
            "error", DRIVER, f"{version} here, {meant} on {counted[meant]} of {len(drivers)} nodes",
            "install one driver on all of them, and restart those that change",
        )
        for node, version in drivers.items()
        if version != meant
    }  # fmt: skip
    return {node: [*([more[node]] if node in more else []), *items] for node, items in found.items()}


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isascii() and part.isdecimal())
