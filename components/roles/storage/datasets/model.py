"""Names, files and ports of data sets, and the texts that machines exchange, which are checked here."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from components.node.log import printable
from components.node.step.step import STATE_DIR
from components.validation.untrusted import value_of

# The account that reads sources and owns the copies. It has no other rights.
ACCOUNT = "tailrack-data"
# rsync's port on the tailnet, and on the proven fabric.
PORT, FABRIC_PORT = 6814, 6815

STATE = f"{STATE_DIR}/data"
# On the head node: its settings, lists of files at the sources, the plan for nodes, and the report for people.
SETTINGS, FETCHED, PLAN, REPORT = f"{STATE}/settings.json", f"{STATE}/fetched", f"{STATE}/plan", f"{STATE}/report.json"
PLAN_FILE = "plan.json"
# On a node: the head node's tailnet address, a copy of its plan, and the node's state and lists of sums for others.
HEAD_ADDRESS, FROM_HEAD, HERE = f"{STATE}/head", f"{STATE}/from-head", f"{STATE}/state"
STATUS_FILE = "status.json"

# rsync's server, and the folders that it serves, of each part of this machine.
SOCKET, SERVER = "tailrack-data.socket", "tailrack-data@.service"
MODULES = f"{STATE}/modules"
HEAD_MODULES, NODE_MODULES = f"{MODULES}/head.conf", f"{MODULES}/node.conf"
STAGE, STAGE_TIMER = "tailrack-data-stage.service", "tailrack-data-stage.timer"
HEAD, HEAD_TIMER = "tailrack-data-head.service", "tailrack-data-head.timer"
FILES_PROGRAM = "/usr/local/lib/tailrack/data-files"
STAGE_PROGRAM, HEAD_PROGRAM = "/usr/local/sbin/tailrack-data", "/usr/local/sbin/tailrack-data-head"

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
VERSION = re.compile(r"[0-9a-f]{12}")
_SUM = re.compile(r"([0-9a-f]{64})?")
_Name = Annotated[str, NAME.pattern]
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MOST_ERROR = 400
# The most bytes of a list of files.
MOST_LIST = 2**30

COMPLETE, COPIES, SUMS, WAITS, FAILED = "complete", "copies", "compares sums", "waits", "failed"


@dataclass(frozen=True)
class Entry:
    """A file of a data set: path, size, time at the source, and SHA-256, empty if no one has read the file yet."""

    path: str
    size: int
    time: str = ""
    sum: str = ""

    @property
    def key(self) -> tuple[str, int, str]:
        """Return all that tells a file from a changed one without reading it."""
        return self.path, self.size, self.time


def is_plain_path(path: object) -> bool:
    """Return whether a text is a relative path that stays in its folder, without control characters."""
    if not isinstance(path, str) or not path or len(path.encode("utf-8", "surrogateescape")) > 2000:
        return False
    return not _CONTROL.search(path) and all(part not in ("", ".", "..") for part in path.split("/"))


def write_entries(entries: Sequence[Entry]) -> str:
    """Return entries as text, one JSON array per line."""
    return "".join(json.dumps([*entry.key, entry.sum]) + "\n" for entry in entries)


def read_entries(text: str) -> list[Entry]:
    """Return the entries of a text. Raises ValueError or TypeError if one is malformed."""
    entries = [Entry(*json.loads(line)) for line in text.splitlines()]
    for entry in entries:
        good = is_plain_path(entry.path) and type(entry.size) is int and entry.size >= 0
        if not good or not isinstance(entry.time, str) or not _SUM.fullmatch(entry.sum):
            raise ValueError("a line is malformed")
    return entries


def list_name(name: str, version: str) -> str:
    """Return the name of the file with the entries of a version."""
    return f"files.{name}.{version}"


@dataclass(frozen=True)
class Progress:
    """A data set on a node. `sums`: the SHA-256 of the list of sums of a complete copy."""

    version: Annotated[str, rf"({VERSION.pattern})?"]
    state: Annotated[str, "|".join((COMPLETE, COPIES, SUMS, WAITS, FAILED))]
    error: str = ""
    source: str = ""
    sums: Annotated[str, _SUM.pattern] = ""


def read_status(text: str) -> dict[str, Progress]:
    """Return a node's data sets by name; none if the text is malformed."""
    try:
        rows: dict[str, Progress] = value_of(dict[_Name, Progress], json.loads(text)["sets"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {
        name: replace(row, error=printable(row.error, MOST_ERROR), source=printable(row.source, 80))
        for name, row in rows.items()
    }


@dataclass(frozen=True)
class PlannedSet:
    """A data set in the plan."""

    name: str
    kind: str
    folder: str
    sites: list[str] | None
    version: str = ""  # the version to have; empty before the source was listed
    bytes: int = 0
    count: int = 0
    error: str = ""
    sums: str = ""  # the SHA-256 of its list of sums, as the first node that fetched it computed them
    fetchers: dict[str, str] = field(default_factory=dict)  # the node that fetches it, by site
    complete: list[str] = field(default_factory=list)  # nodes that have it

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
    reserve: int
    head: str
    sets: list[PlannedSet]
    nodes: dict[str, Member]


def read_plan(text: str) -> Plan | None:
    """Return the plan; None without one."""
    try:
        data = json.loads(text)
        sets = [PlannedSet(**row) for row in data.pop("sets")]
        nodes = {name: Member(**row) for name, row in data.pop("nodes").items()}
        return Plan(**data, sets=sets, nodes=nodes)
    except (ValueError, TypeError, KeyError):
        return None


def size_text(size: float) -> str:
    """Return a size for people, such as `1.2 TB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
