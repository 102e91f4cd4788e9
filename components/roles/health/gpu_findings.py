"""The deep check's findings about GPUs, in a file on the head node that all users may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from components.validation.preflight.findings import Finding, finding
from components.validation.preflight.node_checks import load, save

FINDINGS = Path("/var/lib/tailrack/gpu-findings.json")


def publish(items: Mapping[str, Sequence[Finding]], path: Path = FINDINGS) -> None:
    """Write the findings by node."""
    save(path, {node: list(findings) for node, findings in items.items()}, 0o644)


def published(path: Path = FINDINGS) -> dict[str, list[Finding]]:
    """Return the findings by node; none where the file is missing or malformed."""
    data = load(path)
    try:
        return {
            str(node): [finding(item["severity"], item["check"], item["seen"], item["remedy"]) for item in items]
            for node, items in (data or {}).items()
        }
    except (TypeError, KeyError, AttributeError):
        return {}
