"""The account that reads sources and owns the copies, and programs that run as it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from components.node import files
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.passwd import user_named
from components.node.run import Ended, run
from components.node.text import printable
from components.roles.datasets.model import MOST_ERROR, Entry
from components.roles.datasets.paths import ACCOUNT, FILES_PROGRAM

# Seconds: a data set may take days.
LONG = 7 * 86400.0
_MOST_OUTPUT = 2**30
_PERCENT = re.compile(rb"(\d{1,3})%")
_MOST_TAIL = 4000
# Words of rclone before the reason.
_PREFIX = re.compile(r"^[0-9/]+ [0-9:]+ ((ERROR|NOTICE) : )?(Failed to \w+: )?(error in ListJSON: )?")


def ensure_account() -> None:
    """Make the account if it is missing."""
    if not user_named(ACCOUNT):
        place = ("--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
        run("useradd", "--system", "--user-group", *place, ACCOUNT)


class _Follower:
    """The stream that gets a program's output: it keeps the end, and reports the last percentage."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report, self.tail = report, b""

    def tell(self) -> int:
        return 0

    def write(self, data: bytes) -> int:
        self.tail = (self.tail + data)[-_MOST_TAIL:]
        if percents := _PERCENT.findall(data):
            self._report(min(int(percents[-1]), 100))
        return len(data)


def transfer(report: Callable[[int], None], *arguments: str) -> Ended:
    """Run a command of data-files that prints its progress. `errors` of the result has the end of its output."""
    follower = _Follower(report)
    ended = as_user(ACCOUNT, FILES_PROGRAM, *arguments, limit=LONG, into=follower)
    return Ended(ended.status, "", follower.tail.decode("utf-8", "replace").replace("\r", "\n") + "\n" + ended.errors)


def output(*arguments: str, stdin: str = "", limit: float = LONG) -> Ended:
    """Run a program as the account, and return its output."""
    return as_user(ACCOUNT, *arguments, limit=limit, stdin=stdin, most=_MOST_OUTPUT)


def file_times(folder: str) -> list[tuple[str, int, int]]:
    """Return path, size and time of the files in a folder. Raises Failure if the account cannot read all of it."""
    ended = output(FILES_PROGRAM, "list", files.on_disk(folder))
    if not ended.ok:
        raise Failure(reason(ended))
    return [tuple(json.loads(line)) for line in ended.output.splitlines()]


def sums_of(folder: str, paths: Sequence[str]) -> list[Entry]:
    """Return the files with their sizes and sums; size -1 for those that cannot be read."""
    if not paths:
        return []
    stdin = "".join(f"{json.dumps(path)}\n" for path in paths)
    ended = output(FILES_PROGRAM, "sums", files.on_disk(folder), stdin=stdin)
    if not ended.ok:
        raise Failure(f"cannot read the files in {folder}: {reason(ended)}", "see 'journalctl -u tailrack-data-stage'")
    return [Entry(*json.loads(line)) for line in ended.output.splitlines()]


def link_missing(old: str, folder: str, paths: Sequence[str]) -> list[str]:
    """Link files of an earlier version that a folder lacks. Return the paths that are linked."""
    stdin = "".join(f"{json.dumps(path)}\n" for path in paths)
    ended = output(FILES_PROGRAM, "link", files.on_disk(old), files.on_disk(folder), stdin=stdin)
    if not ended.ok:
        raise Failure(f"cannot link files of {old}: {reason(ended)}", "see 'journalctl -u tailrack-data-stage'")
    return [json.loads(line) for line in ended.output.splitlines()]


def remove(folder: str) -> None:
    """Remove a folder of the account."""
    output(FILES_PROGRAM, "remove", files.on_disk(folder))


def reason(ended: Ended) -> str:
    """Return the line of a program's output that has the reason of its failure."""
    if ended.status == 124:
        return "it took too long"
    lines = [line for line in ended.errors.splitlines() if line.strip() and not _PERCENT.search(line.encode())]
    errors = [line for line in lines if re.search(r"error|fail|denied|refused|no space|forbidden", line, re.IGNORECASE)]
    # rsync ends with a line that only says that there were errors.
    errors = [line for line in errors if not line.startswith("rsync error:")] or errors
    return printable(_PREFIX.sub("", (errors or lines or [f"exit status {ended.status}"])[-1].strip()), MOST_ERROR)
