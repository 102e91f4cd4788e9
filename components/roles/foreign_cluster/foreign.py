"""Set aside files of another cluster, before a step writes the cluster's own."""

from __future__ import annotations

from pathlib import PurePosixPath

from components.node import files
from components.node.log import note
from components.node.run import run
from components.node.step.step import STATE_DIR

# Only root can read it, because it can contain keys.
BACKUP = f"{STATE_DIR}/backup"


def set_aside(path: str) -> None:
    """Move a file or folder of root's into the backup without overwriting anything there."""
    files.make_folder(BACKUP, 0o700)
    files.make_folder(str(PurePosixPath(f"{BACKUP}{path}").parent))
    # The backup may be on another disk.
    run("mv", "-T", "--backup=numbered", path, f"{BACKUP}{path}")
    note(f"moved {path} of another cluster to {BACKUP}{path}")
