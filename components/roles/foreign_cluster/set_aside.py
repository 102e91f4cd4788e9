"""Set files of another cluster aside before a step writes its own."""

from __future__ import annotations

from pathlib import PurePosixPath

from components.node import files
from components.node.log import note
from components.node.run import run
from components.node.step.step import STATE_DIR

# Only root can read it, because it can contain keys.
BACKUP = f"{STATE_DIR}/backup"


def set_aside(path: str) -> None:
    """Move a file or folder into the backup, maybe on another file system, without overwriting anything there."""
    target = f"{BACKUP}{path}"
    files.make_folder(BACKUP, 0o700)
    files.make_folder(str(PurePosixPath(target).parent))
    run("mv", "-T", "--backup=numbered", "--", path, target)
    note(f"moved {path} of another cluster to {target}")
