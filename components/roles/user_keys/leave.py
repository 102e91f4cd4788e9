"""Remove the keys. Role ssh_trust reloads sshd."""

from __future__ import annotations

from components.node import files
from components.node.step.step import Step
from components.roles.user_keys.keys import CONF, FOLDER


def leave(step: Step) -> None:
    """Remove the lines for sshd and the keys."""
    files.remove(CONF)
    files.remove_folder(FOLDER)
