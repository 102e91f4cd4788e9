"""The program that checks a node's mounts."""

from __future__ import annotations

from components.node import files
from components.roles.mounts import units
from components.roles.mounts.wanted import LIST
from components.validation.preflight.mounts import RESULTS

PROGRAM = "/usr/local/sbin/tailrack-mounts"


def remove_watch() -> None:
    """Remove everything of it."""
    for path in (PROGRAM, LIST, f"/{RESULTS}", units.RECORD):
        files.remove(path)


def is_installed() -> bool:
    """Return whether this node has, or had, mounts."""
    return any(files.exists(path) for path in (PROGRAM, LIST, units.RECORD))
