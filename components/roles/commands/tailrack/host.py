"""The command `tailrack` on the head node and on log-in nodes."""

import compileall

from components.node.pack import ROOT
from components.node.step.step import Step

COMMAND = "/usr/local/bin/tailrack"


def services(step: Step) -> None:
    """At the end of the step, compile the modules that root has not imported: users run them but cannot write there."""
    step.later.append(lambda: compileall.compile_dir(str(ROOT), quiet=2))


login = services
