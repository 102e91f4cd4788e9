"""Detect a head node that was restored from a backup older than the newest one in the stack's state.

The owner of a backup target can hide the newest backups. The backup role's services step prints the time of the last
backup (components/roles/backup/host.py), which stays in the state when the head node is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from cli.run_events import Made
from components.steps.command_line import is_step

KNOWN, RESTORED = "backup_made", "restored_made"


def moment(resources: Iterable[Made], name: str) -> int:
    """Return the latest time (seconds since 1970) that a step printed under this name; 0 if no step did."""
    moments = [0]
    for resource in resources:
        if is_step(resource.command) and name in resource.stdout:
            try:
                answer = json.loads(resource.stdout)
            except ValueError:
                continue
            value = answer.get(name) if isinstance(answer, dict) else None
            moments += [value] if isinstance(value, int) else []
    return max(moments)


def older_backup(before: Iterable[Made], after: Iterable[Made]) -> str:
    """Return a warning if this run restored a backup older than the newest known one, else ""."""
    before = list(before)
    newest, restored = moment(before, KNOWN), moment(after, RESTORED)
    if restored in (0, moment(before, RESTORED)) or restored >= newest:
        return ""
    return (
        f"WARNING: the head node was restored from a backup of {_time(restored)}, but a backup of {_time(newest)} "
        "existed. If tailrack:head.restore_from is latest, newer backups are missing at the target: ask its owner."
    )


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
