"""Pack and unpack a user's home. Only processes of the home's owner open its files; root passes the bytes on."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import BinaryIO, TypeVar

from components.node import files
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.run import Ended
from components.roles.backup.restic import restic, shown

_LIST_SECONDS, _HOME_SECONDS = 900, 15 * 3600
# The time limit of tar: a number of seconds, and more for a large home. The target may be far away.
_PACK_SECONDS, _BYTES_PER_SECOND = 1800, 10**6
# An archive has headers, and files grow.
_MORE_BYTES = 2 * 10**9
# tar could read all files, or some changed meanwhile.
_ACCEPTED = (0, 1)
_TOTAL = re.compile("^Total bytes written: ([0-9]{1,18}) ", re.MULTILINE)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Home:
    """A home on the share: its user's name, its path, the uid and gid of its owner, and patterns to leave out."""

    name: str
    path: str
    ids: tuple[int, int]
    exclude: tuple[str, ...]

    def _tar(self, archive: str, *options: str) -> tuple[str, ...]:
        parts = [pattern.split("/", 1) for pattern in self.exclude]
        # A pattern such as ada/data starts with the name of a home.
        below = [part[1] for part in parts if len(part) == 2 and fnmatchcase(self.name, part[0])]
        return (
            *("tar", "-c", "-f", archive, *options, "--sparse", "--one-file-system", "--numeric-owner"),
            # Others may own files in a home.
            *("--ignore-failed-read", "--warning=none", "--wildcards", "--no-wildcards-match-slash"),
            *("--no-anchored", *(f"--exclude={pattern}" for pattern in self.exclude)),
            *("--anchored", *(f"--exclude=./{pattern}" for pattern in below)),
            *("-C", files.on_disk(self.path), "."),
        )

    def list_files(self) -> Listing:
        """Return the size of its archive, without the holes of files, and a digest of the list of its files.

        tar reads no file for /dev/null.
        """
        listing = Listing()
        words = self._tar("/dev/null", "--totals", "-vv", "--full-time", "--quoting-style=escape")
        ended = as_user(self.ids, *words, limit=_LIST_SECONDS, into=listing)
        _check(ended)
        listing.size = _total(ended.errors)
        return listing

    def pack(self, stream: Stream, size: int) -> None:
        """Write an archive of it. Raises Failure if that does not work, also if the stream's reader has gone.

        size   the size of its files
        """
        limit = min(_PACK_SECONDS + size / _BYTES_PER_SECOND, _HOME_SECONDS)
        try:
            _check(as_user(self.ids, *self._tar("-"), limit=limit, into=stream))
        except BrokenPipeError:
            raise Failure("restic stopped reading") from None


def _check(ended: Ended) -> None:
    if ended.status not in _ACCEPTED:
        raise Failure(f"tar failed with status {ended.status}: {_last_line(ended)}")


def _total(errors: str) -> int:
    if totals := _TOTAL.findall(errors):
        return int(totals[-1])
    raise Failure("tar does not report the size of the files")


def _last_line(ended: Ended) -> str:
    return shown((ended.errors.strip().splitlines() or [""])[-1])


class Listing:
    """tar's list of files: the digest of the list, and the size of the archive."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        return len(data)

    def tell(self) -> int:
        """Return 0: the list can have any length."""
        return 0


class Stream:
    """A pipe to restic that takes a limited number of bytes."""

    def __init__(self, descriptor: int, most: int) -> None:
        self._descriptor, self._left = descriptor, most

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise Failure("it became too large while it was saved")
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return len(data)

    def tell(self) -> int:
        """Return 0: `write` has its own limit."""
        return 0


def save(folder: str, words: Sequence[str], home: Home, size: int) -> Ended:
    """Run a command of restic that saves the archive of a home, and return how it ended.

    Raises Failure if tar fails. restic has then saved a part.
    """
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(_closing, reading, partial(restic, folder, *words, limit=_HOME_SECONDS, stdin=reading))
        failure: Failure | None = None
        try:
            home.pack(Stream(writing, 2 * size + _MORE_BYTES), size)
        except Failure as error:
            failure = error
        finally:
            os.close(writing)
        result = ended.result()
    # restic's own error explains why it stopped reading.
    if failure and result.ok:
        raise failure
    return result


def unpack(folder: str, words: Sequence[str], ids: tuple[int, int], to: str) -> None:
    """Unpack an archive that a command of restic prints into a folder of the owner. Raises Failure."""
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(_closing, writing, partial(restic, folder, *words, limit=_HOME_SECONDS, into=writing))
        with os.fdopen(reading, "rb") as stream:
            unpacked = _untar(stream, ids, to)
        result = ended.result()
    if not unpacked.ok or not result.ok:
        reasons = [_last_line(unpacked)] if not unpacked.ok else []
        reasons += [_last_line(result)] if not result.ok else []
        raise Failure("; ".join(filter(None, reasons)) or "it took too long")


def _untar(stream: BinaryIO, ids: tuple[int, int], to: str) -> Ended:
    return as_user(ids, "tar", "-x", "-p", "-f", "-", "-C", files.on_disk(to), limit=_HOME_SECONDS, stdin=stream)


def _closing(descriptor: int, function: Callable[[], _T]) -> _T:
    try:
        return function()
    finally:
        os.close(descriptor)
