"""A head node that was restored from a backup older than the newest one that the stack's state remembers.

Whoever keeps the backups can hide the newest ones. Their services step answers when the last backup was made
(components/roles/backup/services.sh), and the answer stays in the state when the head node is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from components.steps.command_line import is_step
from engine.events import Made

KNOWN, RESTORED = "backup_made", "restored_made"


def moment(made: Iterable[Made], name: str) -> int:
    """Return the latest moment (seconds since 1970) that a step answered by this name; 0 where none did."""
    found = [0]
    for each in made:
        if is_step(each.command) and name in each.stdout:
            try:
                answer = json.loads(each.stdout)
            except ValueError:
                continue
            value = answer.get(name) if isinstance(answer, dict) else None
            found += [value] if isinstance(value, int) else []
    return max(found)


def older_backup(before: Iterable[Made], after: Iterable[Made]) -> str:
    """Return a warning where this run restored a backup older than one that was known; empty else."""
    before = list(before)
    known, restored = moment(before, KNOWN), moment(after, RESTORED)
    if restored in (0, moment(before, RESTORED)) or restored >= known:
        return ""
    return (
        f"WARNING: the head node was restored from a backup of {_time(restored)}, and one of {_time(known)} was made. "
        "Where tailrack:head.restore_from is latest, newer backups are missing at the target: ask whoever keeps it."
    )


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
