"""Add a node to slurmctld's files, and remove it from the controller."""

from __future__ import annotations

import re
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.slurm import controller
from components.roles.slurm.jobs import clear_jobs
from components.roles.slurm.node_files import NodeFiles, node_folder, write_node
from components.roles.slurm.offer import offer
from components.roles.slurm.paths import BASE
from components.roles.slurm_release.wait_for_packages import unreserve_node

_LEAVES = "tailrack: leaves the cluster"


@dataclass(frozen=True)
class LeavingNode:
    """A node that leaves, and the seconds to wait for its jobs (jobs.py)."""

    node_name: str
    slurm_job_limit_seconds: int


@dataclass(frozen=True)
class NodeName:
    """A node that the head node forgets. expire.py knows only its name."""

    node_name: str


def register(step: Step, values: NodeFiles) -> None:
    """Add the node."""
    # Before the lock, so that the step that has it takes this node's files along.
    write_node(values)
    step.take_lock()
    names = ["slurm.conf", "gres.conf"]
    # slurmctld places a node that already exists: its own step asks for the reconfiguration.
    if controller.has_node(values.node_name):
        names.append("topology.conf")
    if reason := offer(names=names):
        files.remove_folder(node_folder(values.node_name))
        raise Failure(reason, f"see its errors above and 'journalctl -u slurmctld' on {step.host}")


def release(step: Step, values: LeavingNode) -> None:
    """Clear the node of jobs, and remove it from the files that slurmctld gets next."""
    # Without a controller every node looks deleted.
    if not wait_until(controller.answers, 60):
        raise Failure("slurmctld does not answer", f"see 'journalctl -u slurmctld' on {step.host}")
    if controller.has_node(values.node_name):
        _drain(values)
    # Before this step waits for the lock, so that one reconfiguration removes all leaving nodes. The owner file stays.
    for name in ("site", "fabric", "memory", "gpu_cpus", "slurm.conf", "job_submit.lua"):
        files.remove(f"{node_folder(values.node_name)}/{name}")


def _drain(values: LeavingNode) -> None:
    node, limit = values.node_name, values.slurm_job_limit_seconds
    if re.search(r"State=[A-Z+]*(DOWN|NOT_RESPONDING)|State=.*\*", attempt("scontrol", "show", "node", node).output):
        note(f"not waiting for jobs on {node}, because it does not answer")
        limit = 0
    if not clear_jobs(node, _LEAVES, limit):
        attempt("scontrol", "update", f"nodename={node}", "state=down", f"reason={_LEAVES}")


def forget(step: Step, values: NodeName) -> None:
    """Delete the node from the controller and from its files."""
    name = values.node_name
    # Slurm does not delete a node in a reservation.
    unreserve_node(name)
    if not wait_until(lambda: controller.node_deleted(name), 60):
        raise Failure(f"slurmctld does not delete node {name}", f"see 'scontrol show node {name}' on {step.host}")
    files.remove_folder(node_folder(name))
    # An unfinished head node has no files yet.
    if files.is_folder(BASE) and (reason := offer()):
        raise Failure(reason, f"see 'journalctl -u slurmctld' on {step.host}")
