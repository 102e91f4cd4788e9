"""When a figure was measured, where that was not in the run that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


def dated(result: Mapping[str, Any], since: float, now: float) -> str:
    """Return `measured 05:18 UTC, unchanged since` for a result older than this run, with the date on another day.

    Empty for one of this run, and for one that measured nothing.

    since   when the run began, seconds since 1970; infinity where the command measures nothing
    now     the same, for what is today
    """
    try:
        at = datetime.fromisoformat(str(result.get("measured_at")))
    except ValueError:
        return ""
    if result.get("verdict") == "BUSY" or at.tzinfo is None or at.timestamp() >= since:
        return ""
    today = at.astimezone(UTC).date() == datetime.fromtimestamp(now, UTC).date()
    return f"measured {at.astimezone(UTC):{'%H:%M' if today else '%Y-%m-%d %H:%M'} UTC}, unchanged since"
