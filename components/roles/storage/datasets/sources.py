"""List the files at the sources, on the head node. A version is named by the digest of this list.

Listing reads names, sizes and times, never contents. The first node that fetches a version computes the sums.
"""

import hashlib
import json
import time
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.log import printable
from components.node.waiting import within
from components.roles.storage.datasets import programs
from components.roles.storage.datasets.model import (
    ACCOUNT,
    FETCHED,
    MOST_ERROR,
    PLAN,
    PORT,
    Entry,
    is_plain_path,
    list_name,
    size_text,
    write_entries,
)
from components.roles.storage.datasets.serve import url

_RETRY_SECONDS = 60


@dataclass(frozen=True)
class Source:
    """A data set of the head node's settings, with its secret key or token.

    kind     `s3`, `https`, `hf` or `share`
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
    def config(self) -> str:
        """Return the path of rclone's settings."""
        return f"{PLAN}/remote.{self.name}"

    @property
    def _settings(self) -> str:
        keys = {"access_key": self.access_key, "secret_key": self.secret_key}
        return programs.rclone_config(self.kind, self.source, endpoint=self.endpoint, region=self.region, **keys)

    @property
    def digest(self) -> str:
        """Return a digest of all that a list depends on."""
        return hashlib.sha256(f"{self.kind} {self.source} {self.most} {self._settings}".encode()).hexdigest()

    def entries(self, head: str) -> list[Entry]:
        """Return all files at the source. `head`: the address at which this machine serves the share's folders."""
        if self.kind != "share":
            programs.write_config(self.config, self._settings)
            return programs.hub_list(self.config) if self.kind == "hf" else programs.rclone_list(self.config)
        files.remove(self.config)
        try:
            return programs.rsync_list(url(head, PORT, f"source-{self.name}"))
        except Failure as failure:
            reason = f"{self.shown} has a link that leaves the share, or not everyone can read it: {failure.reason}"
            raise Failure(reason) from None

    @property
    def remedy(self) -> str:
        if self.kind == "share":
            return f"check {self.shown} on a node, then run 'tailrack-data-head check {self.name}' on the head node"
        keys = {"s3": "source, endpoint, access_key and secret_key", "hf": "source, endpoint and token"}
        return f"check {keys.get(self.kind, 'source')} of {self.name} in tailrack:datasets, then run up again"


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


def keep_listed(source: Source, seconds: int, head: str) -> Listed:
    """List a source if that is due, and return the result."""
    path, now = f"{FETCHED}/{source.name}.json", time.time()
    try:
        last = Listed(**json.loads(files.read(path) or "{}"))
    except (ValueError, TypeError):
        last = Listed()
    asked = files.remove(f"{FETCHED}/{source.name}.again")
    fresh = within(_RETRY_SECONDS if last.error else seconds, last.checked, now)
    has_files = not last.version or files.exists(f"{PLAN}/{list_name(source.name, last.version)}")
    if not asked and last.digest == source.digest and fresh and has_files:
        return last
    try:
        result = _list(source, now, head)
    except Failure as failure:
        # The nodes keep the last version.
        error = printable(f"{failure.reason}; next: {source.remedy}", MOST_ERROR)
        result = Listed(source.digest, now, last.version, last.bytes, last.count, error)
    files.write(path, json.dumps(vars(result)), 0o600)
    return result


def _list(source: Source, now: float, head: str) -> Listed:
    entries = sorted(source.entries(head), key=lambda entry: str(entry.path))
    for entry in entries:
        if not is_plain_path(entry.path):
            raise Failure(f"the source has a file with an unusual name ({printable(repr(entry.path), 80)})")
        if type(entry.size) is not int or entry.size < 0:
            raise Failure(f"the source does not report the size of {printable(entry.path, 80)}")
    if not entries:
        raise Failure("the source has no files")
    total = sum(entry.size for entry in entries)
    if source.most and total > source.most:
        raise Failure(f"the source has {size_text(total)}, more than max_gb ({size_text(source.most)})")
    version = hashlib.sha256(write_entries(entries).encode()).hexdigest()[:12]
    path = f"{PLAN}/{list_name(source.name, version)}"
    if not files.exists(path):
        files.write(path, write_entries(entries), 0o640, "root", ACCOUNT)
    return Listed(source.digest, now, version, total, len(entries))
