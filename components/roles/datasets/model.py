"""The values that the head node and nodes exchange as JSON. Texts of another machine are checked here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from components.node.text import printable

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
VERSION = re.compile(r"[0-9a-f]{12}")
_SUM = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MOST_ERROR = 400
# The most bytes of a list of files.
MOST_LIST = 2**30

COMPLETE, FETCHES, COPIES, SUMS, WAITS, FAILED = "complete", "fetches", "copies", "compares sums", "waits", "failed"
STATES = frozenset({COMPLETE, FETCHES, COPIES, SUMS, WAITS, FAILED})


@dataclass(frozen=True)
class Entry:
    """A file of a data set: its path in it, its size, and its SHA-256, empty if no one has read it yet."""

    path: str
    size: int
    sum: str = ""


def is_plain_path(path: object) -> bool:
    """Return whether a text is a relative path that stays in its folder, without control characters."""
    if not isinstance(path, str) or not path or len(path.encode("utf-8", "surrogateescape")) > 2000:
        return False
    return not _CONTROL.search(path) and all(part not in ("", ".", "..") for part in path.split("/"))


def write_entries(entries: Sequence[Entry]) -> str:
    """Return entries as text, one JSON array per line."""
    return "\n".join(json.dumps([entry.path, entry.size, entry.sum]) for entry in entries)


def read_entries(text: str) -> list[Entry]:
    """Return the entries of a text. Raises ValueError if one is malformed."""
    return list(_entries(text))


def _entries(text: str) -> Iterator[Entry]:
    for line in text.splitlines():
        path, size, digest = json.loads(line)
        if not is_plain_path(path) or type(size) is not int or size < 0 or (digest and not _SUM.fullmatch(digest)):
            raise ValueError("a line is malformed")
        yield Entry(path, size, digest)


def files_name(name: str, version: str) -> str:
    """Return the name of the file with the entries of a version."""
    return f"files.{name}.{version}"


def list_name(name: str, version: str) -> str:
    """Return the name of the file in which a node keeps the entries of a version that it has."""
    return f"{name}.{version}"


def sums_name(name: str, version: str) -> str:
    """Return the name of the file with the sums that a fetching node computed."""
    return f"sums.{name}.{version}"


@dataclass(frozen=True)
class Progress:
    """A data set on a node. `done` is the number of bytes that are on its disk."""

    version: str
    state: str
    done: int = 0
    error: str = ""
    source: str = ""


def read_status(text: str) -> dict[str, Progress]:
    """Return a node's data sets by name; none if the text is malformed."""
    try:
        sets = json.loads(text)["sets"]
        return {name: _progress(row) for name, row in sets.items() if NAME.fullmatch(name)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _progress(row: Mapping[str, Any]) -> Progress:
    version, state, done = row["version"], row["state"], row["done"]
    if (not VERSION.fullmatch(version) and version) or state not in STATES or type(done) is not int:
        raise ValueError
    return Progress(version, state, done, printable(row["error"], MOST_ERROR), printable(row["source"], 80))


@dataclass(frozen=True)
class PlannedSet:
    """A data set in the plan.

    version     the version to have; empty before the source was listed
    bytes       its size
    fetchers    the node that fetches it, by site
    complete    nodes that have it
    """

    name: str
    kind: str
    folder: str
    sites: list[str] | None
    version: str = ""
    bytes: int = 0
    count: int = 0
    error: str = ""
    fetchers: dict[str, str] = field(default_factory=dict)
    complete: list[str] = field(default_factory=list)

    def wanted_at(self, site: str) -> bool:
        return self.sites is None or site in self.sites


@dataclass(frozen=True)
class Member:
    """A node in the plan: its site, tailnet address, and addresses on proven networks: group, rank and address."""

    site: str
    address: str
    fabric: list[list[Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """The plan of the head node for all nodes."""

    rate: int
    quota: int
    reserve: int
    head: str
    sets: list[PlannedSet]
    nodes: dict[str, Member]


def read_plan(text: str) -> Plan:
    """Return the plan. The head node is trusted, so a malformed one is an error (ValueError, TypeError, KeyError)."""
    data = json.loads(text)
    sets = [PlannedSet(**row) for row in data.pop("sets")]
    nodes = {name: Member(**row) for name, row in data.pop("nodes").items()}
    return Plan(**data, sets=sets, nodes=nodes)


def size_text(size: float) -> str:
    """Return a size for people, such as `1.2 TB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
