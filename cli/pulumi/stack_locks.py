"""Locks of the Pulumi CLI on a stack: their place, their owner, and whether their run is still active.

A backend in a folder or a bucket has one file for each run that changes the stack. A killed run leaves its file.
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
from components.validation.untrusted import read

_FILE = "file://"
# The CLI (3.260, pkg/backend/diy/lock.go) lists the locks of a stack like this, one per line.
_LISTED = re.compile(r": created by (?P<user>[^\s@]*)@(?P<host>\S+) \(pid (?P<pid>\d{1,18})\) at (?P<since>\S+)")
LOCKED = "the stack is currently locked by"
# The error of Pulumi's service, which names no process.
BUSY = "Another update is currently in progress"


@dataclass(frozen=True)
class Lock:
    """One lock, with the CLI's keys; an incomplete file gives one without process, host and time."""

    pid: int = 0
    username: str = ""
    hostname: str = ""
    timestamp: str = ""

    @property
    def elsewhere(self) -> bool:
        return bool(self.hostname) and self.hostname != socket.gethostname()

    @property
    def held(self) -> bool:
        """Return whether a run on this machine holds the lock; another program may have its process number by now."""
        return not self.elsewhere and is_cli(self.pid)

    @classmethod
    def of_file(cls, content: bytes) -> Lock:
        """Return the lock in a file; any other content counts as an incomplete lock."""
        try:
            return read(cls, json.loads(content))
        except (ValueError, RecursionError):
            return cls()


def locks_in(folder: Path, project: str, stack: str) -> list[Lock]:
    """Return the locks of a stack in a backend's folder."""
    return [Lock.of_file(file.read_bytes()) for file in folder.glob(f".pulumi/locks/**/{project}/{stack}/*.json")]


def locks_in_message(text: str) -> list[Lock]:
    """Return the locks that the CLI lists when it refuses a run."""
    matches = _LISTED.finditer(text) if LOCKED in text else ()
    return [Lock(int(match["pid"]), match["user"], match["host"], match["since"]) for match in matches]


def backend_folder(url: str) -> Path | None:
    """Return the folder of a backend's URL as the CLI resolves it (massageBlobPath); None if it is no local folder."""
    if not url.startswith(_FILE):
        return None
    path = unquote(url.removeprefix(_FILE).partition("?")[0])
    home = path.startswith("~")
    return _lexical(Path(pwd.getpwuid(os.getuid()).pw_dir, path[2:]) if home else Path(path))


def absolute(url: str) -> str:
    """Return a backend's URL that does not depend on the CLI's working directory."""
    path, mark, options = url.removeprefix(_FILE).partition("?")
    if not url.startswith(_FILE) or path.startswith(("/", "~")):
        return url
    return f"{_FILE}{_lexical(Path(path))}{mark}{options}"


def _lexical(path: Path) -> Path:
    """Return the absolute path like Go's filepath.Abs: `..` removes the part before it, without following links."""
    return Path(os.path.normpath(Path.cwd() / path))
