"""The date of a figure that was measured in an earlier run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def dated(result: Mapping[str, Any], since: float, now: float) -> str:
    """Return `measured 05:18 UTC, unchanged since` for a result older than this run, with the date on another day.

    Returns "" for a result of this run, and for one without a measurement.

    since   the start of the run in seconds since 1970; infinity for a command that does not measure
    now     the present time in seconds since 1970
    """
    try:
        measured_at = datetime.fromisoformat(str(result.get("measured_at")))
    except ValueError:
        return ""
    if result.get("verdict") == "BUSY" or measured_at.tzinfo is None or measured_at.timestamp() >= since:
        return ""
    today = measured_at.astimezone(UTC).date() == datetime.fromtimestamp(now, UTC).date()
    return f"measured {measured_at.astimezone(UTC):{'%H:%M' if today else '%Y-%m-%d %H:%M'} UTC}, unchanged since"
