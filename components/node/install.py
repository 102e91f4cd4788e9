"""Put the program in place on a machine: one folder per version, which appears whole.

It runs as root and gets the program, a zip archive, from a pipe: the file belongs to the login that brought it. Python
compiles a module when root first imports it. On the head node, whose commands users run too, role `tailrack_command`
compiles all of them, while no node waits.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

FOLDER = "/usr/local/lib/tailrack/program"


def install(archive: bytes, version: str, folder: str = FOLDER) -> str:
    """Unpack an archive unless this version is in place, and return its folder."""
    there = Path(folder, version)
    if there.is_dir():
        return str(there)
    os.umask(0o022)
    Path(folder).mkdir(parents=True, exist_ok=True)
    fresh = tempfile.mkdtemp(dir=folder, prefix=f".{version}.")
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            packed.extractall(fresh)
        Path(fresh).chmod(0o755)
        Path(fresh).rename(there)
    except OSError:
        # Another step of the same moment was faster.
        if not there.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return str(there)
