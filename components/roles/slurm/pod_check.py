"""Check Slurm on a pod: it gets the distribution's, because it has no share with the packages of another release."""

from __future__ import annotations

from components.node.step.step import Step
from components.roles.slurm.check import Release, check


def pod_check(step: Step) -> None:
    """Report the version, the MPI library and whether cgroups work, and files of another cluster."""
    check(step, Release(""))
