"""The command `data-files`: work with files of a data set, as an account that has no other rights.

data-files sums FOLDER       print path, size, time and SHA-256 of each file on stdin; size -1 for one that does not fit
data-files rclone FILE ...   run rclone with the settings of a source and the machine's proxy in its environment
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_PROXY = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
_CHUNK = 2**20
_AT_ONCE = 4


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    match [*arguments]:
        case ["rclone", file, *words]:
            settings = json.loads(Path(file).read_text(encoding="utf-8"))["settings"]
            source = {f"RCLONE_CONFIG_SOURCE_{name.upper()}": text for name, text in settings.items()}
            # No file: rclone gives `#`, quotes and `%(...)s` in it a meaning, and its errors repeat lines.
            command = ["rclone", "--config", "/dev/null", *words]
            os.execvpe("rclone", command, {**os.environ, **_proxy(), **source})  # noqa: S606 no shell
        case ["sums", folder]:
            rows = [json.loads(line) for line in sys.stdin]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for row in pool.map(lambda row: read_row(folder, row), rows):
                    sys.stdout.write(f"{json.dumps(row)}\n")
            return 0
    sys.stderr.write(f"{__doc__}")
    return 2


def _proxy() -> dict[str, str]:
    """Return the machine's proxy, which may contain a password."""
    try:
        lines = Path("/etc/environment").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    pairs = (line.removeprefix("export ").partition("=") for line in lines)
    return {name: value.strip("\"'") for name, _, value in pairs if name.lower() in _PROXY}


def read_row(folder: str, row: Sequence[Any]) -> list[Any]:
    """Return an entry with the SHA-256 of its file; size -1 for a link, a special or missing file, or another sum."""
    path, size, time, wanted = row
    digest, read = hashlib.sha256(), 0
    try:
        descriptor = os.open(f"{folder}/{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                while part := stream.read(_CHUNK):
                    digest.update(part)
                    read += len(part)
            else:
                read = -1
    except OSError:
        read = -1
    fits = read == size and wanted in ("", digest.hexdigest())
    return [path, size if fits else -1, time, digest.hexdigest() if fits else ""]
