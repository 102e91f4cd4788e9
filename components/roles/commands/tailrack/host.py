"""The command `tailrack` on the head node and on log-in nodes."""

from __future__ import annotations

import compileall

from components.node.pack import ROOT
from components.node.step.step import Step

COMMAND = "/usr/local/bin/tailrack"


def services(step: Step) -> None:
    """Compile the modules that root has not imported: users run them, and only root can write the compiled files."""
    compileall.compile_dir(str(ROOT), quiet=2)


login = services
