"""Let the machine's owner upgrade its packages again."""

from __future__ import annotations

from components.node import files
from components.node.step.step import Step
from components.roles.held_packages.machine import PINS

_NEEDRESTART = "/etc/needrestart"


def leave(step: Step) -> None:
    """Remove the pins and needrestart's settings, and its folders unless needrestart is installed."""
    files.remove(PINS)
    files.remove(f"{_NEEDRESTART}/conf.d/tailrack.conf")
    for folder in (f"{_NEEDRESTART}/conf.d", _NEEDRESTART):
        files.remove_if_empty(folder)
