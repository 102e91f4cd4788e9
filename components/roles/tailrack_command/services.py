"""Compile the whole program: users run its commands, and only root can write the compiled files."""

from __future__ import annotations

import compileall

from components.node.pack import ROOT
from components.node.step.step import Step


def services(step: Step) -> None:
    """Compile the modules that root has not imported yet."""
    compileall.compile_dir(str(ROOT), quiet=2)
