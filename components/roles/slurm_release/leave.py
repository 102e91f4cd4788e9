"""Let the machine's package manager decide about Slurm again."""

from __future__ import annotations

from components.node import files
from components.node.passwd import user_named
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.slurm_release.packages import OURS, PIN, installed_packages

_BUILDER = "tailrack-build"


def leave(step: Step) -> None:
    """Remove what keeps the release, and the rest of an interrupted build."""
    if user_named(_BUILDER):
        attempt("pkill", "-KILL", "-u", _BUILDER)
        attempt("userdel", _BUILDER)
    if not files.exists(PIN):
        return
    if ours := installed_packages().get(OURS):
        attempt("apt-mark", "unhold", *ours)
    files.remove(PIN)
