"""Restore the machine's earlier host name and its /etc/hosts."""

from __future__ import annotations

from components.node import files, systemd
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.names.machine import CLOUD_CONF, FOLLOW, NAMES, RESOLVED, RESOLVED_CONF
from components.roles.names.names import LIST, NAME_BEFORE, forget
from components.roles.names.publish import PROGRAM
from components.roles.names.published import SOURCE


def leave(step: Step) -> None:
    """Stop the program and undo its work."""
    systemd.retire(FOLLOW, NAMES)
    files.remove(CLOUD_CONF)
    if files.remove(RESOLVED_CONF):
        attempt("systemctl", "try-restart", RESOLVED)
    if files.exists(NAME_BEFORE):
        forget()
    for path in (PROGRAM, LIST, SOURCE):
        files.remove(path)
