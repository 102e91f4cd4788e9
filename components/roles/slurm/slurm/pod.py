"""Run slurmd on a pod as a dynamic node, with the library through which it uses the tailnet.

Before slurmd, its service runs the command `pod-lost-jobs NODE ADDRESS`, which ends the jobs of an earlier start of the
container. slurmctld does not notice that a job ended with the container if the job had started less than 20 s before
the new slurmd registers (_purge_missing_jobs in src/slurmctld/job_mgr.c), and slurmd registers only once. slurmctld
also keeps allocations of salloc and srun, and jobs that were ending.
"""

import os
import shlex
from collections.abc import Sequence

from components.node import files, kernel, services
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.waiting import sleep, wait_for
from components.roles.access.users.host import end_sessions
from components.roles.pods.pod.library import library_path, use_library, without_library
from components.roles.pods.pod.saved import READY
from components.roles.pods.pod_staging.steps import steps
from components.roles.slurm.slurm import controller
from components.roles.slurm.slurm.folders import LOST_JOBS, set_foreign_slurm_aside
from components.roles.slurm.slurm.jobs import set_cause, started_again_cause
from components.roles.slurm.slurm.node_state import REGISTER_LIMIT, Usability, wait_for_place
from components.roles.slurm.slurm.slurmd import (
    CONTROLLER_PORT,
    ComputeValues,
    dynamic_conf,
    recreate_node,
    registers_otherwise,
)
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node

SERVICE = "slurmd"
# slurmd's first request fails without munged, and its next one comes much later. It binds to the address of the host
# name (names/host.py).
_PROGRAM = """#!/bin/bash
# Written by tailrack.
exec 2>&1
until tailscale wait --timeout 20s; do sleep 1; done
until munge -n >/dev/null; do sleep 0.5; done
until [ -e {ready} ]; do sleep 0.5; done
until [ "$(getent ahostsv4 "$(hostname)" | head -c 10)" = "127.0.0.1 " ]; do sleep 1; done
until {lost_jobs} {host} {head}; do sleep 2; done
mkdir -p /run/slurm /var/spool/slurmd
ulimit -n "$(ulimit -Hn)"
cd /
export TAILNET_ACCEPT=1 LD_PRELOAD={library}
exec slurmd -D -Z -N {host} --conf-server {head}:{port} --conf {conf}"""
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


def pod(step: Step, values: ComputeValues, pod_library: str) -> None:
    """Register this pod, and wait until the controller gives it jobs. `pod_library`: the library's source."""
    set_foreign_slurm_aside()
    library = library_path(pod_library)
    program = _PROGRAM.format(
        library=library,
        ready=READY,
        lost_jobs=LOST_JOBS,
        host=step.host,
        head=values.head_address,
        port=CONTROLLER_PORT,
        conf=shlex.quote(dynamic_conf(values)),
    )
    # Slurm's programs use the tailnet too.
    use_library()
    step.at_end.append(without_library)
    runs = services.is_active(SERVICE)
    changed = services.write(SERVICE, program)
    node = slurm.node(step.host) if runs else None
    if node is None:
        node, changed = _start(step.host, changed=changed and runs), False
    if node and registers_otherwise(node, values):
        recreate_node(step.host, node, values.slurm_job_limit_seconds)
    elif changed:
        services.restart_later(SERVICE)
    usability = Usability(step.host, values.head_address)
    usability.require()
    if wait_for_place(step.host, values.head_address):
        usability.require()
    step.result("slurm_version", run("slurmd", "-V").split()[1])


def _start(host: str, *, changed: bool) -> Node | None:
    services.start(SERVICE, host)
    if changed:
        services.restart_later(SERVICE)
    return wait_for(lambda: slurm.node(host), REGISTER_LIMIT)


def pod_leave(step: Step) -> None:
    """Stop slurmd, then the jobs."""
    try:
        services.stop(SERVICE)
    except Failure as failure:
        note(str(failure))
    attempt("pkill", "-KILL", "-x", "slurmstepd")
    files.remove_folder("/var/spool/slurmd")
    end_sessions()


def end_lost_jobs(arguments: Sequence[str]) -> int:
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
            ping = slurm.ping(_LIMIT)
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
    node = slurm.node(name)
    if node is None:
        return controller.answers()
    rows = slurm.squeue("%i", "-w", name, limit=_LIMIT)
    if rows is None:
        return False
    jobs = sorted({row[0] for row in rows})
    if not jobs:
        return True
    note(f"ending jobs of an earlier start of this container: {' '.join(jobs)}")
    for job in jobs:
        set_cause(job, started_again_cause(name))
    # A drain keeps its reason.
    reason = node.reason if node.drained and node.reason else REASON
    if not slurm.update(nodename=name, state="down", reason=reason, limit=_LIMIT):
        return False
    sleep(_LAST_ORDER_SECONDS)
    return True
