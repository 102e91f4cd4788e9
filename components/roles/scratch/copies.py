"""The copies that a user has asked for in a job (`tailrack sync`): files in the job's folder on the node's disk.

All of this runs as the user. Root only looks whether the folder COPIES exists.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from components.roles.scratch.paths import COPIES

_MOST_BYTES = 65536


@dataclass(frozen=True)
class Copy:
    """A folder to copy.

    source    its path in the job's folder; `.` is the whole folder
    target    an absolute path, or REMOTE:PATH of rclone
    job       the job's id
    node      the node's name
    asked     how often it was asked for
    at_end    whether to copy it again after the job
    config    rclone's config file if it is not the usual one
    """

    source: str
    target: str
    job: str
    node: str
    asked: int = 1
    at_end: bool = False
    config: str = ""

    @property
    def id(self) -> str:
        """Return a name that is the same for the same source and target."""
        return hashlib.sha256(f"{self.source}\0{self.target}".encode("utf-8", "surrogateescape")).hexdigest()[:16]

    @property
    def is_remote(self) -> bool:
        """Return whether the target is at a remote of rclone."""
        return not self.target.startswith("/")


def write(folder: Path, copy: Copy) -> None:
    """Write a copy to the list of a job's folder, whole or not at all."""
    place = folder / COPIES
    place.mkdir(mode=0o700, exist_ok=True)
    new = place / f"{copy.id}.{os.getpid()}.new"
    new.write_text(json.dumps(asdict(copy)), encoding="utf-8")
    new.rename(place / f"{copy.id}.json")


def read(folder: Path, name: str) -> Copy | None:
    """Return a copy by its id; None if it is not in the list, or the file is damaged."""
    try:
        with (folder / COPIES / f"{name}.json").open(encoding="utf-8") as file:
            copy = Copy(**json.loads(file.read(_MOST_BYTES)))
    except (OSError, ValueError, TypeError):
        return None
    return copy if all(isinstance(text, str) for text in (copy.source, copy.target, copy.config)) else None


def listed(folder: Path) -> list[Copy]:
    """Return the copies of a job's folder, sorted by id."""
    names = sorted(path.stem for path in (folder / COPIES).glob("*.json"))
    return [copy for copy in (read(folder, name) for name in names) if copy]


def remove(folder: Path, copy: Copy) -> None:
    """Remove a copy that is made from the list."""
    with suppress(FileNotFoundError):
        (folder / COPIES / f"{copy.id}.json").unlink()


@contextmanager
def locked(folder: Path, copy: Copy, *, wait: bool) -> Iterator[bool]:
    """Yield whether no other process makes this copy now; none does until the end.

    wait   wait for the other process
    """
    with (folder / COPIES / f"{copy.id}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
