"""Files of another cluster on a machine: moved into a backup when the machine joins, and back when it leaves."""

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
    note(f"moved {path} to {BACKUP}{path}")


def put_back(*paths: str) -> None:
    """Move files out of the backup to where they were, unless others are there now."""
    for path in paths:
        kept = f"{BACKUP}{path}"
        if files.exists(kept) and not files.exists(path):
            run("mv", "-T", kept, path)
            note(f"moved {kept} back to {path}")
            for folder in PurePosixPath(kept).parents[: len(PurePosixPath(path).parents)]:
                files.remove_if_empty(str(folder))


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
