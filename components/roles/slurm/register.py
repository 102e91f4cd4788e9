"""Add a node to slurmctld's files, and remove it from the controller."""

from __future__ import annotations

import re
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.slurm import controller
from components.roles.slurm.elastic_state import is_placeholder
from components.roles.slurm.jobs import clear_jobs
from components.roles.slurm.node_files import NodeFiles, node_folder, write_node
from components.roles.slurm.node_state import LEAVES
from components.roles.slurm.offer import offer
from components.roles.slurm.paths import BASE, JOB_LIMIT
from components.roles.slurm_release.reservations import unreserve_node

# Flags of a placeholder that has no machine, or loses it.
_WITHOUT_MACHINE = re.compile(r"State=\S*(POWERED_DOWN|POWERING_DOWN|POWER_DOWN)")


@dataclass(frozen=True)
class NodeAndAddress(NodeFiles):
    """A node's part of slurmctld's files, and its tailnet address."""

    node_address: str


@dataclass(frozen=True)
class LeavingNode:
    """A node that leaves, and the seconds to wait for its jobs (jobs.py)."""

    node_name: str
    slurm_job_limit_seconds: int


@dataclass(frozen=True)
class NodeName:
    """A node that the head node forgets. expire.py knows only its name."""

    node_name: str


def register(step: Step, values: NodeAndAddress) -> None:
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
    if is_placeholder(name := values.node_name):
        run("scontrol", "update", f"nodename={name}", f"nodeaddr={values.node_address}", f"nodehostname={name}")


def release(step: Step, values: LeavingNode) -> None:
    """Clear the node of jobs, and remove it from the files that slurmctld gets next."""
    # Without a controller every node looks deleted.
    if not wait_until(controller.answers, 60):
        raise Failure("slurmctld does not answer", f"see 'journalctl -u slurmctld' on {step.host}")
    name = values.node_name
    if controller.has_node(name) and not (is_placeholder(name) and _is_without_machine(name)):
        _drain(values)
    # Before this step waits for the lock, so that one reconfiguration removes all leaving nodes. The owner file stays.
    for part in ("site", "fabric", "memory", "gpu_cpus", "slurm.conf", "job_submit.lua"):
        files.remove(f"{node_folder(values.node_name)}/{part}")


def _drain(values: LeavingNode) -> None:
    node = values.node_name
    limit = min(values.slurm_job_limit_seconds, int(files.read(JOB_LIMIT) or values.slurm_job_limit_seconds))
    if re.search(r"State=[A-Z+]*(DOWN|NOT_RESPONDING)|State=.*\*", attempt("scontrol", "show", "node", node).output):
        note(f"not waiting for jobs on {node}, because it does not answer")
        limit = 0
    if not clear_jobs(node, LEAVES, limit):
        attempt("scontrol", "update", f"nodename={node}", "state=down", f"reason={LEAVES}")


def _is_without_machine(node: str) -> bool:
    """Return whether a node is a placeholder that Slurm has suspended, so that no job is on it."""
    return bool(_WITHOUT_MACHINE.search(attempt("scontrol", "show", "node", node).output))


def forget(step: Step, values: NodeName) -> None:
    """Delete the node from the controller and from its files."""
    name = values.node_name
    # Slurm does not delete a node in a reservation.
    unreserve_node(name)
    if is_placeholder(name):
        if not _is_without_machine(name):
            attempt("scontrol", "update", f"nodename={name}", "state=power_down_force", f"reason={LEAVES}")
    elif not wait_until(lambda: controller.node_deleted(name), 60):
        raise Failure(f"slurmctld does not delete node {name}", f"see 'scontrol show node {name}' on {step.host}")
    files.remove_folder(node_folder(name))
    # An unfinished head node has no files yet.
    if files.is_folder(BASE) and (reason := offer()):
        raise Failure(reason, f"see 'journalctl -u slurmctld' on {step.host}")
