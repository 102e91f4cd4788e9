"""Locks of the Pulumi CLI on a stack: where they are, whose they are, and whether their run is still at work.

A backend in a folder or a bucket has a file for each run that changes the stack. A run that was killed leaves its own.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from cli.pulumi.processes import is_cli

_FILE = "file://"
# How the CLI (3.260, pkg/backend/diy/lock.go) lists the locks that keep it from a stack, one a line.
_LISTED = re.compile(r": created by (?P<user>[^\s@]*)@(?P<host>\S+) \(pid (?P<pid>\d{1,18})\) at (?P<since>\S+)")
LOCKED = "the stack is currently locked by"
# Pulumi's service says so; it has no process that could be looked for.
BUSY = "Another update is currently in progress"


@dataclass(frozen=True)
class Lock:
    """One lock; one that was cut off has no process, no host and no time."""

    pid: int = 0
    user: str = ""
    host: str = ""
    since: str = ""

    @property
    def elsewhere(self) -> bool:
        """Whether another machine made it."""
        return bool(self.host) and self.host != socket.gethostname()

    @property
    def held(self) -> bool:
        """Whether the run of this machine that made it is at work; another program may have its number since."""
        return not self.elsewhere and is_cli(self.pid)

    @classmethod
    def of_file(cls, content: bytes) -> Lock:
        """The lock of a file; one that holds something else was cut off."""
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            return cls()
        found = found if isinstance(found, dict) else {}
        pid, user, host, time = (found.get(key) for key in ("pid", "username", "hostname", "timestamp"))
        if not isinstance(pid, int):
            return cls()
        return cls(pid, str(user or ""), str(host or ""), str(time or ""))


def locks_in(folder: Path, project: str, stack: str) -> list[Lock]:
    """Return the locks of a stack in a backend's folder."""
    return [Lock.of_file(file.read_bytes()) for file in folder.glob(f".pulumi/locks/**/{project}/{stack}/*.json")]


def locks_told(text: str) -> list[Lock]:
    """Return the locks that the CLI names as it refuses a run."""
    found = _LISTED.finditer(text) if LOCKED in text else ()
    return [Lock(int(one["pid"]), one["user"], one["host"], one["since"]) for one in found]


def backend_folder(url: str, start: Path = Path()) -> Path | None:
    """Return the folder that a backend's URL means to the CLI (massageBlobPath); None for one that is no folder here.

    start   where a relative path starts
    """
    if not url.startswith(_FILE):
        return None
    path = unquote(url.removeprefix(_FILE).partition("?")[0])
    home = path.startswith("~")
    return _lexical(Path(pwd.getpwuid(os.getuid()).pw_dir) / path[2:] if home else start / path)


def absolute(url: str) -> str:
    """Return a backend's URL that means the same folder wherever the CLI is run."""
    path, mark, options = url.removeprefix(_FILE).partition("?")
    if not url.startswith(_FILE) or path.startswith(("/", "~")):
        return url
    return f"{_FILE}{_lexical(Path(path))}{mark}{options}"


def _lexical(path: Path) -> Path:
    """The absolute path as Go's filepath.Abs makes it: a `..` takes the word before it, and no link is followed."""
    return Path(os.path.normpath(Path.cwd() / path))
