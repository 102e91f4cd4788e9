"""The command `pod-boot`: bring a pod back after a stop, from what its volume has.

The start command of the provider's template runs /workspace/.tailrack/boot, which starts this.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from components.node import files, run
from components.node.locks import PRIVATE, Lock
from components.node.program import run_program
from components.node.proxy import proxy_variables
from components.node.step import kept
from components.node.step.main import prepare_folders
from components.roles.pod.saved import restore

PLAN = "boot"


def main(arguments: Sequence[str]) -> int:
    """Restore the files, start the services, and return the exit status."""
    os.environ.update({"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "PATH": run.PATH, **proxy_variables()})
    return run_program("tailrack-boot", _boot)


def _boot() -> int:
    files.make_folder(PRIVATE, 0o700)
    # A step of an `up` may come at the same time.
    with Lock("tailrack"):
        prepare_folders()
        restore()
        return kept.main([PLAN])
