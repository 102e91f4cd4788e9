"""Remove the backup program and the state that was restored from a backup."""

from __future__ import annotations

from components.node import files
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.backup.remove import remove_backup
from components.roles.restore.host import RESTORED, RESTORED_AGE, RESTORING


def leave(step: Step) -> None:
    """Remove them."""
    do_each(
        remove_backup, *(lambda path=path: files.remove_folder(path) for path in (RESTORED, RESTORED_AGE, RESTORING))
    )
