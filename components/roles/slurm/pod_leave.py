"""Stop Slurm on a pod, and end the rest of jobs."""

from __future__ import annotations

from components.node import files, services
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.slurm.pod import SERVICE
from components.roles.users.host import end_sessions


def pod_leave(step: Step) -> None:
    """Stop slurmd, then the jobs."""
    try:
        services.stop(SERVICE)
    except Failure as failure:
        note(str(failure))
    attempt("pkill", "-KILL", "-x", "slurmstepd")
    files.remove_folder("/var/spool/slurmd")
    end_sessions()
