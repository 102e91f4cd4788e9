"""Traces of another cluster on a machine."""

from __future__ import annotations

from pathlib import PurePosixPath

from components.node import files
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.run import run
from components.node.step.step import Step

# Only root can read it, because it can contain keys.
BACKUP = f"{STATE_DIR}/backup"


def set_aside(path: str) -> None:
    """Move a file or folder of root's into the backup without overwriting anything there."""
    files.make_folder(BACKUP, 0o700)
    files.make_folder(str(PurePosixPath(f"{BACKUP}{path}").parent))
    # The backup may be on another disk.
    run("mv", "-T", "--backup=numbered", path, f"{BACKUP}{path}")
    note(f"moved {path} of another cluster to {BACKUP}{path}")


def check(step: Step, node_take_over: bool) -> None:
    """Refuse the machine unless the config allows taking it over."""
    foreign = ", ".join(step.foreign)
    if not foreign:
        return
    note(f"of another cluster: {foreign}")
    if not node_take_over:
        raise Failure(
            f"this machine serves another cluster: it has {foreign}",
            f"remove {step.host} from the config; or, if these are no longer needed, set take_over: true for it there "
            f"(they are kept in {BACKUP} on it)",
        )
