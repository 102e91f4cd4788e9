"""The command `tailrack` on the head node."""

from __future__ import annotations

import compileall

from components.node import files
from components.node.install import FOLDER
from components.node.pack import ROOT
from components.node.step.step import Step

COMMAND = "/usr/local/bin/tailrack"


def services(step: Step) -> None:
    """Compile the modules that root has not imported: users run them, and only root can write the compiled files."""
    compileall.compile_dir(str(ROOT), quiet=2)


def leave(step: Step) -> None:
    """Remove the command if it is tailrack's own."""
    text = files.read(COMMAND) or ""
    if f"{FOLDER}/" in text:
        files.remove(COMMAND)
