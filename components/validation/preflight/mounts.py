"""Report the mounts of a node (storage.mounts), as role mounts checks them every minute.

The checks here read its results, so a server that hangs cannot stop them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.node.waiting import within
from components.validation.preflight.findings import Finding, finding

MOUNT = "mount"
# The mounts that the node must have, and the results. Both are JSON.
WANTED, RESULTS = Path("etc/tailrack/mounts.json"), Path("run/tailrack/mounts.json")
# Seconds after which results are too old.
OLD_SECONDS = 600
_CHECKER = "see 'journalctl -u tailrack-mounts' on the node, and run 'tailrack-minute mounts' there"


def check_mounts(root: Path, now: float) -> Iterator[Finding]:
    """Yield a finding for each mount with a problem: an error if no job can run without it, else a warning."""
    if not (root / WANTED).exists():
        return
    results = _load(root / RESULTS)
    if results is None or not within(OLD_SECONDS, results["time"], now):
        yield finding("warning", MOUNT, "the mounts of storage.mounts are not checked", _CHECKER)
        return
    for result in results["mounts"]:
        if result["problem"]:
            severity = "error" if result["required"] is True else "warning"
            yield finding(severity, MOUNT, f"{result['path']} {result['problem']}", str(result["remedy"]))


def _load(path: Path) -> Any:
    """Return the results; None if they are missing or malformed."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        valid = isinstance(results["time"], int | float) and all(
            {"path", "problem", "remedy", "required"} <= result.keys() for result in results["mounts"]
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return results if valid else None
