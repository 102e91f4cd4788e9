"""The command `data-files`: read files of a data set, as an account that has no other rights.

FOLDER may be written as SHARE/./FOLDER: then no link in FOLDER's own path is followed.

data-files list FOLDER       print path, size and time of each plain file, as JSON arrays
data-files sums FOLDER       print path, size and SHA-256 of each path on stdin; size -1 for a missing file
data-files link FOLDER TO    link the paths on stdin from FOLDER to TO, if TO lacks them; print those that are linked
data-files remove FOLDER     remove a folder
data-files exec COMMAND      run a command with the machine's proxy, which may contain a password
data-files rclone FILE ...   the same for rclone, with the settings of a source in its environment
"""

from __future__ import annotations

import errno
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
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_LINKS = 40
_AT_ONCE = 4


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    command, folder, *words = arguments
    if command == "exec":
        os.execvpe(folder, [folder, *words], {**os.environ, **_proxy()})  # noqa: S606 no shell
    if command == "rclone":
        settings = json.loads(Path(folder).read_text(encoding="utf-8"))["settings"]
        source = {f"RCLONE_CONFIG_SOURCE_{name.upper()}": text for name, text in settings.items()}
        # No file: rclone gives `#`, quotes and `%(...)s` in it a meaning, and its errors repeat lines.
        arguments = ["rclone", "--config", "/dev/null", *words]
        os.execvpe("rclone", arguments, {**os.environ, **_proxy(), **source})  # noqa: S606 no shell
    if command == "list":
        try:
            for row in listed(folder):
                sys.stdout.write(f"{json.dumps(row)}\n")
        except OSError as error:
            sys.stderr.write(f"{error.strerror}: {error.filename}\n" if error.filename else f"{error}\n")
            return 1
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


def listed(folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of each plain file below a folder, sorted. A link that stays inside counts as its file.

    Raises OSError at the end if other links exist.
    """
    root, bad = _open_folder(folder), list[str]()
    try:
        yield from _listed(root, "", (), bad)
    finally:
        os.close(root)
    if bad:
        raise OSError(f"{len(bad)} links lead to no file inside of the folder, such as {bad[0]!r}")


def _listed(root: int, prefix: str, above: tuple[str, ...], bad: list[str]) -> Iterator[tuple[str, int, int]]:
    """List one folder. `above`: its own path and those above it, without links, which make a link a loop."""
    descriptor, real = _open(root, prefix)
    try:
        names = sorted(os.listdir(descriptor))  # noqa: PTH208 by descriptor
        kinds = {name: os.stat(name, dir_fd=descriptor, follow_symlinks=False) for name in names}
    finally:
        os.close(descriptor)
    for name, state in kinds.items():
        path = f"{prefix}{name}"
        if stat.S_ISLNK(state.st_mode):
            try:
                linked_to, target = _open(root, path)
            except OSError:
                bad.append(path)
                continue
            state = os.fstat(linked_to)
            os.close(linked_to)
            if target in (*above, real) or not (stat.S_ISDIR(state.st_mode) or stat.S_ISREG(state.st_mode)):
                bad.append(path)
                continue
        if stat.S_ISDIR(state.st_mode):
            yield from _listed(root, f"{path}/", (*above, real), bad)
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
        root = _open_folder(folder)
        try:
            descriptor, _ = _open(root, path)
        finally:
            os.close(root)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return -1, ""
            while part := stream.read(_CHUNK):
                digest.update(part)
                size += len(part)
    except OSError:
        return -1, ""
    return size, digest.hexdigest()


def _open_folder(folder: str) -> int:
    """Return a descriptor of a folder. After `/./`, links are refused."""
    base, _, below = folder.partition("/./")
    descriptor = os.open(base or "/", _FLAGS | os.O_DIRECTORY)
    for name in filter(None, below.split("/")):
        try:
            step = os.open(name, _FLAGS | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = step
    return descriptor


def _open(root: int, path: str) -> tuple[int, str]:
    """Return a descriptor of a path below a folder, and the path without links. Raises OSError if a link leaves it."""
    folders, names, left, links = [os.dup(root)], list[str](), path.split("/")[::-1], 0
    try:
        while left:
            name = left.pop()
            if name == "..":
                if not names:
                    raise OSError(errno.EXDEV, "leads out of the folder", path)
                names.pop()
                os.close(folders.pop())
            elif name not in ("", "."):
                try:
                    folders.append(os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=folders[-1]))
                    names.append(name)
                except OSError as error:
                    links += 1
                    if error.errno != errno.ELOOP or links > _MOST_LINKS:
                        raise
                    target = os.readlink(name, dir_fd=folders[-1])
                    # The server of data sets has another root folder.
                    if target.startswith("/"):
                        raise OSError(errno.EXDEV, "is an absolute link", path) from None
                    left += target.split("/")[::-1]
        return folders.pop(), "/".join(names)
    finally:
        for descriptor in folders:
            os.close(descriptor)
