"""Save the users' homes in the backup's repository, after the head node's state (tailrack-backup-homes.service).

Each home is one backup: an archive that tar makes as the home's owner. A home whose files have not changed since its
last backup is not read again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.locks import Lock
from components.node.text import printable
from components.roles.backup.home_archive import Home, Listing, save
from components.roles.backup.record import recorded
from components.roles.backup.remove import FOLDER, HOMES_LISTS, HOMES_RECORD, HOMES_SETTINGS
from components.roles.backup.restic import last_reason, restic
from components.roles.backup.snapshots import Backup, home_tag, list_backups

# Backups of homes; those that may be incomplete have another tag until the end of the run.
TAG, PART_TAG = "tailrack-homes", "tailrack-homes-part"
_FORGET_SECONDS, _LOCK_SECONDS = 3000, 3600
_GB = 10**9
_MOST_REASON = 500


@dataclass(frozen=True)
class Settings:
    """The folder of the homes, and limits from the config."""

    path: str
    max_gb: int
    exclude: tuple[str, ...]


def write_settings(path: str, max_gb: int, exclude: Sequence[str]) -> None:
    """Write the settings of the program."""
    files.write(HOMES_SETTINGS, json.dumps({"path": path, "max_gb": max_gb, "exclude": list(exclude)}), 0o600)


def main(_arguments: Sequence[str]) -> int:
    """Save the homes, and record how that went."""
    data = json.loads(files.read(HOMES_SETTINGS) or "{}")
    settings = Settings(data["path"], data["max_gb"], tuple(data["exclude"]))
    try:
        # The head node's own backup does not remove old data while this lock is held.
        with Lock("backup-homes", seconds=_LOCK_SECONDS):
            reason = _save(settings)
    except Failure as failure:
        reason = printable(failure.reason, _MOST_REASON)
    if reason:
        done = recorded(HOMES_RECORD, "done")
        files.write(HOMES_RECORD, f"done={done}\nfailed={int(time.time())}\nreason={reason}")
        # systemd takes <3> as the priority of an error.
        os.write(2, f"<3>backup of homes failed: {reason}\n".encode())
        return 1
    files.write(HOMES_RECORD, f"done={int(time.time())}")
    return 0


def _save(settings: Settings) -> str:
    """Save them. Return why that failed; empty if it did not. A home that fails stops no other one."""
    if not files.is_closed(settings.path):
        return f"{settings.path} is not a folder that root alone can change"
    failed: dict[str, str] = {}
    lists: dict[Home, Listing] = {}
    for home in _homes(settings):
        try:
            lists[home] = home.list_files()
        except Failure as failure:
            failed[home.name] = failure.reason
    large = _take_too_large(settings, lists)
    cluster = (files.read(f"{FOLDER}/cluster") or "").strip()
    _clean(cluster)
    digests = _unchanged(cluster, lists)
    done = {}
    # The user of a home can delay tar, for longer if the home is large: save small homes first.
    for home, listing in sorted(lists.items(), key=lambda item: item[1].size):
        if home.name in digests:
            continue
        if reason := _save_home(cluster, home, listing.size):
            failed[home.name] = reason
        else:
            done[home.name] = listing.digest
    _finish(cluster, done)
    files.write(HOMES_LISTS, json.dumps({**digests, **done}), 0o600)
    reasons = [*large, *(f"{name}: {reason}" for name, reason in sorted(failed.items()))]
    return printable("; ".join(reasons), _MOST_REASON)


def _homes(settings: Settings) -> Iterable[Home]:
    for name, ids in files.folders_in(settings.path).items():
        # Root's folders are no homes.
        if ids[0] and not name.endswith(".new"):
            yield Home(name, f"{settings.path}/{name}", ids, settings.exclude)


def _take_too_large(settings: Settings, lists: dict[Home, Listing]) -> list[str]:
    """Take out the largest homes until the others have at most `max_gb`. Return a sentence about them."""
    all_bytes, left_out = sum(listing.size for listing in lists.values()), list[str]()
    while sum(listing.size for listing in lists.values()) > settings.max_gb * _GB:
        largest = max(lists, key=lambda home: lists[home].size)
        left_out.append(f"{largest.name} ({lists.pop(largest).size / _GB:.1f} GB)")
    if not left_out:
        return []
    return [
        f"LEFT OUT: {', '.join(left_out)}: the homes have {all_bytes / _GB:.1f} GB, more than "
        f"tailrack:backup.homes.max_gb ({settings.max_gb}); remove files, or change max_gb or exclude"
    ]


def _unchanged(cluster: str, lists: Mapping[Home, Listing]) -> dict[str, str]:
    """Return the digests of homes that the target has and that have not changed, by name."""
    try:
        before = json.loads(files.read(HOMES_LISTS) or "{}")
    except ValueError:
        before = {}
    backups = {backup.home for backup in list_backups(FOLDER, TAG) if backup.cluster == cluster}
    return {
        home.name: listing.digest
        for home, listing in lists.items()
        if home.name in backups and before.get(home.name) == listing.digest
    }


def _save_home(cluster: str, home: Home, size: int) -> str:
    """Save one home. Return why that failed. Raises Failure if the target fails."""
    words = ("backup", "--host", cluster, "--tag", f"{PART_TAG},{home_tag(home.name)}")
    stdin = ("--stdin", "--stdin-filename", file_name(home.name))
    try:
        ended = save(FOLDER, (*words, *stdin), home, size)
    except Failure as failure:
        return failure.reason
    if not ended.ok:
        raise Failure(f"backup: {last_reason(ended.errors)}")
    return ""


def file_name(name: str) -> str:
    """Return the name of the archive of a home in its backup."""
    return f"{name}.tar"


def _clean(cluster: str) -> None:
    """Remove the lock and the incomplete backups of a run that was cut off."""
    restic(FOLDER, "unlock", limit=300)
    if parts := _parts(cluster):
        with Lock("backup", seconds=_LOCK_SECONDS):
            _restic("forget", *(backup.id for backup in parts))


def _finish(cluster: str, done: Mapping[str, str]) -> None:
    """Mark the complete backups as such, and remove old ones. Both need the repository alone."""
    with Lock("backup", seconds=_LOCK_SECONDS):
        if complete := [backup.id for backup in _parts(cluster) if backup.home in done]:
            _restic("tag", "--add", TAG, "--remove", PART_TAG, *complete)
        kept = ("--keep-hourly", "24", "--keep-daily", "30")
        words = ("forget", "--host", cluster, "--tag", TAG, "--group-by", "host,tags", *kept, "--prune")
        ended = restic(FOLDER, *words, limit=_FORGET_SECONDS)
    # A head node that was lost during a backup has left a lock, which restic ignores after 30 minutes.
    if not ended.ok and "already locked" not in ended.errors:
        raise Failure(f"forget: {last_reason(ended.errors)}")


def _parts(cluster: str) -> list[Backup]:
    return [backup for backup in list_backups(FOLDER, PART_TAG) if backup.cluster == cluster]


def _restic(*words: str) -> None:
    ended = restic(FOLDER, *words, limit=_FORGET_SECONDS)
    if not ended.ok:
        raise Failure(f"{words[0]}: {last_reason(ended.errors)}")
