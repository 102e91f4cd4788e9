"""Checks that need a comparison of nodes: different drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.gpus import DRIVER


def with_comparison(findings: Mapping[str, Sequence[Finding]]) -> dict[str, list[Finding]]:
    """Return findings by node, with one more for each node whose driver differs from that of most nodes."""
    drivers = {
        node: item["seen"]
        for node, items in findings.items()
        for item in items
        if item["check"] == DRIVER and item["severity"] == "info"
    }
    counts = Counter(drivers.values())
    # If drivers are equally common, the newest one is the expected one.
    expected = max(counts, key=lambda version: (counts[version], _parts(version)), default="")
    extra = {
        node: finding(
            "error", DRIVER, f"{version} here, {expected} on {counts[expected]} of {len(drivers)} nodes",
            "install the same driver on all nodes, and restart each node that you change",
        )
        for node, version in drivers.items()
        if version != expected
    }  # fmt: skip
    return {node: [*([extra[node]] if node in extra else []), *items] for node, items in findings.items()}


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isascii() and part.isdecimal())
