"""Remove the cluster's key."""

from __future__ import annotations

from components.node import files, folders
from components.node.passwd import user_named
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.munge.keys import DIGESTS, FOLDER, GENERATION, KEY, NEXT


def leave(step: Step) -> None:
    """Stop munged and remove its keys."""
    attempt("systemctl", "disable", "-q", "--now", "munge")
    files.remove(DIGESTS)
    files.remove(GENERATION)
    if not files.exists(FOLDER):
        return
    folders.take(FOLDER, 0o700)
    for path in (KEY, NEXT):
        files.remove(path)
    if user_named("munge"):
        # The package's owner.
        files.make_folder(FOLDER, 0o700, "munge")
