"""The backups at the target, as restic lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from components.node.failure import Failure
from components.roles.backup.restic import last_reason, restic

_LIST_SECONDS = 120
_MOST_LIST = 2**26
# The tag of a backup of one home, before its user's name.
_HOME = "home-"


@dataclass(frozen=True, order=True)
class Backup:
    """A backup, and when it was made, in seconds since 1970."""

    made: int
    id: str
    cluster: str
    tags: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """Return the name of the user whose home it contains; empty if it is another backup."""
        return next((tag.removeprefix(_HOME) for tag in self.tags if tag.startswith(_HOME)), "")


def home_tag(name: str) -> str:
    """Return the tag of the backups of one user's home."""
    return f"{_HOME}{name}"


def list_backups(folder: str, tag: str) -> list[Backup]:
    """Return the backups with a tag. Raises Failure if the target cannot be read.

    folder   the target's keys
    """
    ended = restic(folder, "--no-lock", "snapshots", "--json", "--tag", tag, limit=_LIST_SECONDS, most=_MOST_LIST)
    try:
        backups = list(_backups(ended.output)) if ended.ok else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        backups = None
    if backups is None:
        raise Failure(
            f"the archive at the backup's target cannot be read: {last_reason(ended.errors)}",
            "see tailrack:backup.target, or restore the files there from another copy; then run up again",
        )
    return backups


def _backups(text: str) -> Iterator[Backup]:
    for entry in json.loads(text) or ():
        if not re.fullmatch("[0-9a-f]+", entry["id"]):
            raise ValueError(entry["id"])
        # restic writes nanoseconds and `Z`, which Python 3.10 does not read.
        moment = datetime.fromisoformat(re.sub(r"\.[0-9]+", "", entry["time"]).replace("Z", "+00:00"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)  # noqa: UP017 Python 3.10
        tags = tuple(map(str, entry.get("tags") or ()))
        yield Backup(int(moment.timestamp()), entry["id"], str(entry["hostname"]), tags)
