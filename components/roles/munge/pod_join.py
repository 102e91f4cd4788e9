"""Install the cluster's munge key on a pod, and keep munged running."""

from __future__ import annotations

from components.node import services
from components.node.step.step import Step
from components.roles.munge.join import JoinValues, finish_key, install_key
from components.roles.pod.library import use_library, without_library

SERVICE = "munge"
_ANSWER_SECONDS = 20
_PROGRAM = """#!/bin/sh
# Written by tailrack.
exec 2>&1
install -d -o munge -g munge -m 0755 /run/munge
exec chpst -u munge munged --foreground"""


def pod_join(step: Step, values: JoinValues) -> None:
    """Install the key, the package and the service."""
    # Slurm's programs tell whether the present key is the controller's.
    use_library()
    try:
        changed = install_key(step, values)
    finally:
        without_library()
    if changed is None:
        return
    services.keep(SERVICE, _PROGRAM, step.host, restart_it=changed)
    finish_key(step.host, _ANSWER_SECONDS)
