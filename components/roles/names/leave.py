"""Restore the machine's earlier host name and its /etc/hosts."""

from __future__ import annotations

from components.node import files, systemd
from components.node.run import attempt, run
from components.node.step.step import STATE_DIR, Step
from components.roles.names.machine import CLOUD_CONF, FOLLOW, NAME_BEFORE, NAMES, RESOLVED, RESOLVED_CONF
from components.roles.names.publish import PROGRAM


def leave(step: Step) -> None:
    """Stop the program and undo its work."""
    systemd.retire(FOLLOW, NAMES)
    files.remove(CLOUD_CONF)
    if files.remove(RESOLVED_CONF):
        attempt("systemctl", "try-restart", RESOLVED)
    if files.exists(NAME_BEFORE):
        run(PROGRAM, "forget")
    for path in (PROGRAM, f"{STATE_DIR}/names", f"{STATE_DIR}/names-from"):
        files.remove(path)
