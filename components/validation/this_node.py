"""This node: its name in Slurm, its addresses, its files, and the output of its programs."""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from components.node import run
from components.node.run import Ended

_TITLE = re.compile(r"slurmstepd: \[([0-9]+)\.(?:([^\]]*)\])?")
_OF_ROOT = re.compile(r"^Uid:\t0\t", re.MULTILINE)
_SIOCGIFADDR = 0x8915  # netdevice(7): the IPv4 address of an interface

# Statuses of a command that took too long, cannot be started, or does not exist (components/node/run.py).
TOO_LONG, MISSING = 124, 127
NOT_RUN = (TOO_LONG, 126, MISSING)


def node_name() -> str:
    """Return the node's name in Slurm: two machines may have the same host name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]


def steps(root: Path = Path("/")) -> Iterator[tuple[str, int, str]]:
    """Yield the process, the job and the name of each step on this node, such as `batch`, `0` or `0+1`.

    The name is empty if the process's title is cut off.
    """
    for folder in (root / "proc").glob("[0-9]*"):
        title = _TITLE.match(text_of(folder / "cmdline"))
        # A user's program can give itself the same title.
        if title and _OF_ROOT.search(text_of(folder / "status")):
            yield folder.name, int(title[1]), title[2] or ""


def address_of(interface: str) -> str:
    """Return an interface's IPv4 address. Raises OSError if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
    return socket.inet_ntoa(answer[20:24])


def attempt(*command: str, seconds: float, folder: Path | None = None) -> Ended:
    """Run a command of this environment's PATH. Its status is in NOT_RUN if it cannot run or takes too long."""
    environment = {"PATH": os.environ.get("PATH", run.PATH)}
    return run.attempt(*command, limit=seconds, environment=environment, keep_errors=True, folder=folder)


def output_of(*command: str, seconds: float = 10, must_succeed: bool = False) -> str | None:
    """Return a command's output, whatever its status; None if it cannot run or takes too long.

    must_succeed   return None for a status other than 0 too
    """
    ended = attempt(*command, seconds=seconds)
    return None if ended.status in NOT_RUN or (must_succeed and not ended.ok) else ended.output


def stdout_of(*command: str) -> str:
    """Return a command's output, whatever its status; empty if it cannot run or takes too long."""
    return output_of(*command) or ""


def text_of(path: Path) -> str:
    """Return the stripped text of a file of the kernel or of root; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def load(path: Path) -> Any:
    """Return the JSON content of a file; None if it is missing or malformed."""
    try:
        return json.loads(text_of(path))
    except (ValueError, RecursionError):
        return None


def save(path: Path, value: object, mode: int = 0o600) -> None:
    """Write a file atomically: a string as it is, any other value as JSON."""
    # It imports many modules, and steps of nodes only read.
    import tempfile

    path.parent.mkdir(mode=0o755 if mode & 0o004 else 0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))
        os.fchmod(descriptor, mode)
    Path(name).replace(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, as far as possible. A link is removed, and never followed."""
    import shutil  # it imports many modules too

    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
