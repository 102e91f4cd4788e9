"""List the files at the sources, on the head node. A version is named by the digest of this list.

Listing reads names, sizes and times, never contents. The sums of a source on the share are computed here, because its
disk is here. Those of a source outside are computed by the first site's fetching node, so that the contents cross the
WAN once per site.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from typing import Any

from components.node import files
from components.node.failure import Failure
from components.node.text import printable
from components.node.waiting import within
from components.roles.datasets import account, rclone
from components.roles.datasets.model import MOST_ERROR, Entry, files_name, is_plain_path, size_text, write_entries
from components.roles.datasets.paths import ACCOUNT, FETCHED, PLAN

_RETRY_SECONDS = 60


@dataclass(frozen=True)
class Source:
    """A data set of the head node's settings, with its secret key.

    kind     `s3`, `https` or `share`
    source   its address, or the folder on the head node's disk; `shown` is the text of the config
    most     a larger source is refused; 0: no limit
    """

    name: str
    kind: str
    source: str
    shown: str
    sites: list[str] | None
    folder: str
    most: int
    endpoint: str
    region: str
    access_key: str
    secret_key: str = ""

    @property
    def digest(self) -> str:
        """Return a digest of all that a list depends on."""
        parts = (self.kind, self.source, self.most, self.endpoint, self.region, self.access_key, self.secret_key)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def config(self) -> str:
        """Return rclone's settings; empty for a folder on the share."""
        if self.kind == "share":
            return ""
        keys = {"access_key": self.access_key, "secret_key": self.secret_key}
        return rclone.config(self.kind, self.source, endpoint=self.endpoint, region=self.region, **keys)


@dataclass(frozen=True)
class Listed:
    """The result of the last list of a source.

    digest    of the settings that it was made with
    checked   when, in Unix seconds
    version   the last version that was listed; empty without one
    """

    digest: str = ""
    checked: float = 0.0
    version: str = ""
    bytes: int = 0
    count: int = 0
    error: str = ""


def config_name(name: str) -> str:
    """Return the name of the file with rclone's settings for a data set."""
    return f"remote.{name}"


def listed(name: str) -> Listed:
    """Return the last result."""
    try:
        return Listed(**json.loads(files.read(f"{FETCHED}/{name}.json") or "{}"))
    except (ValueError, TypeError):
        return Listed()


def keep_listed(source: Source, seconds: int) -> Listed:
    """List a source if that is due, and return the result."""
    last, now = listed(source.name), time.time()
    pause = _RETRY_SECONDS if last.error else seconds
    asked = files.remove(f"{FETCHED}/{source.name}.again")
    if (
        not asked
        and last.digest == source.digest
        and within(pause, last.checked, now)
        and _has_files(source.name, last.version)
    ):
        return last
    if source.config:
        rclone.write_config(f"{PLAN}/{config_name(source.name)}", source.config)
    else:
        files.remove(f"{PLAN}/{config_name(source.name)}")
    try:
        result = _list(source, now)
    except Failure as failure:
        # The nodes keep the last version.
        error = printable(f"{failure.reason}; next: {failure.remedy or _remedy(source)}", MOST_ERROR)
        result = Listed(source.digest, now, last.version, last.bytes, last.count, error)
    files.write(f"{FETCHED}/{source.name}.json", json.dumps(vars(result)), 0o600)
    return result


def _remedy(source: Source) -> str:
    config = "in tailrack:datasets"
    match source.kind:
        case "s3":
            return f"check source, endpoint, access_key and secret_key of {source.name} {config}, then run up again"
        case "share":
            return f"check {source.shown} on a node, then run 'tailrack-data-head check {source.name}' on the head node"
    return f"check source of {source.name} {config}, then run up again"


def _has_files(name: str, version: str) -> bool:
    return not version or files.exists(f"{PLAN}/{files_name(name, version)}")


def _list(source: Source, now: float) -> Listed:
    rows: list[tuple[str, int, Any]] = _rows(source)
    for path, size, _ in rows:
        if not is_plain_path(path):
            raise Failure(f"the source has a file with an unusual name ({printable(repr(path), 80)})")
        if type(size) is not int or size < 0:
            raise Failure(f"the source does not report the size of {printable(path, 80)}")
    if not rows:
        raise Failure("the source has no files")
    rows.sort()
    total = sum(size for _, size, _ in rows)
    if source.most and total > source.most:
        raise Failure(f"the source has {size_text(total)}, more than max_gb ({size_text(source.most)})")
    version = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]
    path = f"{PLAN}/{files_name(source.name, version)}"
    if not files.exists(path):
        entries = [Entry(name, size) for name, size, _ in rows]
        if source.kind == "share":
            entries = _with_sums(source, entries)
        files.write(path, write_entries(entries), 0o640, "root", ACCOUNT)
    return Listed(source.digest, now, version, total, len(rows))


def _rows(source: Source) -> list[tuple[str, int, Any]]:
    if source.kind != "share":
        return list(rclone.entries(f"{PLAN}/{config_name(source.name)}"))
    try:
        return list(account.file_times(source.source))
    except Failure as failure:
        raise Failure(f"{source.shown} cannot be read by everyone, or is a link: {failure.reason}") from None


def _with_sums(source: Source, entries: list[Entry]) -> list[Entry]:
    sums = account.sums_of(source.source, [entry.path for entry in entries])
    for entry, read in zip(entries, sums, strict=True):
        if read.size < 0:
            raise Failure(f"not everyone can read {printable(entry.path, 80)} in {source.shown}")
        if read.size != entry.size:
            raise Failure(f"{printable(entry.path, 80)} changes at the source; the next list tries again")
    return sums
