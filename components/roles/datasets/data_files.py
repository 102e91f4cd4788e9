"""The command `data-files`: read files of a data set, as an account that has no other rights.

data-files list FOLDER       print path, size and time of each plain file, as JSON arrays
data-files sums FOLDER       print path, size and SHA-256 of each path on stdin; size -1 for a missing file
data-files link FOLDER TO    link the paths on stdin from FOLDER to TO, if TO lacks them; print those that are linked
data-files remove FOLDER     remove a folder
data-files exec COMMAND      run a command with the machine's proxy, which may contain a password
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_PROXY = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
_CHUNK = 2**20
_AT_ONCE = 4


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    command, folder, *words = arguments
    if command == "exec":
        os.execvpe(folder, [folder, *words], {**os.environ, **_proxy()})  # noqa: S606 no shell
    if command == "list":
        for row in listed(folder):
            sys.stdout.write(f"{json.dumps(row)}\n")
    elif command == "sums":
        paths = [json.loads(line) for line in sys.stdin]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            sums = pool.map(lambda path: sum_of(folder, path), paths)
            for path, (size, digest) in zip(paths, sums, strict=True):
                sys.stdout.write(f"{json.dumps([path, size, digest])}\n")
    elif command == "link":
        for path in (json.loads(line) for line in sys.stdin):
            if linked(f"{folder}/{path}", f"{words[0]}/{path}"):
                sys.stdout.write(f"{json.dumps(path)}\n")
    elif command == "remove":
        if os.path.lexists(folder):
            shutil.rmtree(folder)
    else:
        sys.stderr.write(f"{__doc__}")
        return 2
    return 0


def _proxy() -> dict[str, str]:
    try:
        lines = Path("/etc/environment").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    pairs = (line.removeprefix("export ").partition("=") for line in lines)
    return {name: value.strip("\"'") for name, _, value in pairs if name.lower() in _PROXY}


def listed(folder: str, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of each plain file below a folder, sorted. Links are left out."""
    for entry in sorted(os.scandir(f"{folder}/{prefix}"), key=lambda entry: entry.name):
        path = f"{prefix}{entry.name}"
        state = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(state.st_mode):
            yield from listed(folder, f"{path}/")
        elif stat.S_ISREG(state.st_mode):
            yield path, state.st_size, state.st_mtime_ns


def linked(old: str, new: str) -> bool:
    """Link a file to a free place. Return whether both are the same file."""
    with suppress(FileExistsError, FileNotFoundError):
        Path(new).parent.mkdir(parents=True, exist_ok=True)
        os.link(old, new, follow_symlinks=False)
    return Path(old).exists() and Path(new).exists() and Path(old).samefile(new)


def sum_of(folder: str, path: str) -> tuple[int, str]:
    """Return the size and the SHA-256 of a plain file in a folder; -1 and an empty text if it cannot be read."""
    digest, size = hashlib.sha256(), 0
    try:
        with os.fdopen(_open(folder, path), "rb", buffering=0) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return -1, ""
            while part := stream.read(_CHUNK):
                digest.update(part)
                size += len(part)
    except OSError:
        return -1, ""
    return size, digest.hexdigest()


def _open(folder: str, path: str) -> int:
    """Return a descriptor of a file, to which no link in the folder leads."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in path.split("/"):
        try:
            below = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor
