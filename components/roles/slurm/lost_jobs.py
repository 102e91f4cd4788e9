"""The command `pod-lost-jobs NODE ADDRESS`, on a pod: end the jobs of an earlier start of its container.

slurmd's service runs it before slurmd. slurmctld does not notice that a job ended with the container if the job had
started less than 20 s before the new slurmd registers (_purge_missing_jobs in src/slurmctld/job_mgr.c), and slurmd
registers only once. slurmctld also keeps allocations of salloc and srun, and jobs that were ending.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from components.node import files, kernel
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.run import attempt
from components.node.waiting import sleep
from components.roles.pod.library import use_library
from components.roles.pod_staging.steps import steps
from components.roles.slurm import controller
from components.roles.slurm.end_jobs import set_cause, started_again_cause
from components.roles.slurm.node_state import read_node

REASON = "tailrack: the pod started again"
# Identifies the start of the container whose lost jobs have ended.
_DONE = f"{PRIVATE}/pod-start"
# slurmd deletes and fetches Slurm's own configuration. The name of the cluster is in no request.
_CONFIGURATION = f"{PRIVATE}/pod-lost-jobs.conf"
_CONFIGURATION_TEXT = """ClusterName=tailrack
SlurmctldHost=head({address})
SlurmUser=slurm"""
_LIMIT = 20
# slurmctld tries for 11 s to tell the node to end its jobs (slurm_send_addr_recv_msgs in slurm_protocol_api.c). slurmd
# would end the next run of the same job.
_LAST_ORDER_SECONDS = 12
_START_TIME = 19  # in /proc/PID/stat, after the name of the program


def main(arguments: Sequence[str]) -> int:
    """End the jobs once for each start of the container. Return 1 if slurmctld does not answer."""
    node, address = arguments
    start = _container_start()
    if (files.read(_DONE) or "").strip() == start:
        return 0
    # Jobs that run here have survived a restart of slurmd, after an update from a version without this program.
    if not any(steps()):
        use_library()
        files.make_folder(PRIVATE, 0o700)
        files.write(_CONFIGURATION, _CONFIGURATION_TEXT.format(address=address))
        os.environ["SLURM_CONF"] = files.on_disk(_CONFIGURATION)
        if not _end_jobs(node):
            ping = attempt("scontrol", "ping", limit=_LIMIT, keep_errors=True)
            note(f"slurmd waits for slurmctld at {address}: {' '.join(f'{ping.output} {ping.errors}'.split())[:500]}")
            return 1
    files.write(_DONE, start)
    return 0


def _container_start() -> str:
    """Return a text that differs for each start of this container, also on another host."""
    first_process = kernel.read("/proc/1/stat").rpartition(")")[2].split()
    return f"{kernel.read('/proc/sys/kernel/random/boot_id').strip()} {first_process[_START_TIME]}"


def _end_jobs(name: str) -> bool:
    """Mark the node DOWN if it has jobs, so that slurmctld requeues or ends them. slurmd's registration brings it back.

    Return False if slurmctld does not answer.
    """
    node = read_node(name)
    if node is None:
        return controller.answers()
    listed = attempt("squeue", "-h", "-w", name, "-o", "%i", limit=_LIMIT)
    if not listed.ok:
        return False
    jobs = sorted({*listed.output.split()})
    if not jobs:
        return True
    note(f"ending jobs of an earlier start of this container: {' '.join(jobs)}")
    for job in jobs:
        set_cause(job, started_again_cause(name))
    # A drain keeps its reason.
    reason = node.reason if node.drained and node.reason else REASON
    if not attempt("scontrol", "update", f"nodename={name}", "state=down", f"reason={reason}", limit=_LIMIT).ok:
        return False
    sleep(_LAST_ORDER_SECONDS)
    return True
