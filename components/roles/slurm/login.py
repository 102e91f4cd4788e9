"""Slurm's commands on a log-in node, which runs no slurmd.

They look for their files where slurmd has them on other nodes. Here that is a link to the share, where the head node
writes the files that slurmctld has accepted (controller.py): always the present ones, for every release of Slurm.
"""

from __future__ import annotations

from components.node.failure import Failure
from components.node.run import run
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.slurm import controller
from components.roles.slurm.folders import LINK, set_foreign_slurm_aside
from components.roles.slurm.host import remove_slurmd

_ANSWER_SECONDS = 60


def login(step: Step, slurm_job_limit_seconds: int) -> None:
    """Link the files, and wait for an answer of slurmctld. A slurmd from earlier ends."""
    set_foreign_slurm_aside()
    remove_slurmd(step, slurm_job_limit_seconds)
    run("systemd-tmpfiles", "--create", LINK)
    if not wait_until(controller.answers, _ANSWER_SECONDS):
        raise Failure("slurmctld does not answer the commands of this machine", f"see 'scontrol ping' on {step.host}")
