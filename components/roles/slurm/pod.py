"""Run slurmd on a pod as a dynamic node, with the library through which it uses the tailnet."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from components.node import services
from components.node.run import run
from components.node.step.step import Step
from components.node.waiting import wait_for
from components.roles.pod.library import library_path, use_library, without_library
from components.roles.pod.saved import READY
from components.roles.slurm.compute import CONTROLLER_PORT, ComputeValues, dynamic_conf, registers_otherwise
from components.roles.slurm.foreign_files import set_foreign_slurm_aside
from components.roles.slurm.node_state import NodeState, read_node
from components.roles.slurm.paths import LOST_JOBS
from components.roles.slurm.place import wait_for_place
from components.roles.slurm.recreate import recreate_node
from components.roles.slurm.usable import REGISTER_LIMIT, Usability

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


@dataclass(frozen=True)
class PodValues(ComputeValues):
    """The source of the library."""

    pod_library: str


def pod(step: Step, values: PodValues) -> None:
    """Register this pod, and wait until the controller gives it jobs."""
    set_foreign_slurm_aside()
    library = library_path(values.pod_library)
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
    node = read_node(step.host) if runs else None
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


def _start(host: str, *, changed: bool) -> NodeState | None:
    services.start(SERVICE, host)
    if changed:
        services.restart_later(SERVICE)
    return wait_for(lambda: read_node(host), REGISTER_LIMIT)
