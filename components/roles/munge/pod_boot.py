"""Give munged its key in a new container, where its account may have another number."""

from __future__ import annotations

from components.node import files
from components.node.step.step import Step
from components.roles.munge.keys import KEY, take_folder


def pod_boot(step: Step) -> None:
    """Set the key's owner."""
    take_folder()
    files.write(KEY, files.read(KEY) or "", 0o400, "munge")
