"""Check a node against the cluster's controller."""

from __future__ import annotations

from dataclasses import dataclass

from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.slurm.releases import NEEDED, is_older, one_release_remedy, release_of, upstream_of

# slurmctld drains a node with less than 90 % of its configured memory (node_reg_mem_percent).
_LEAST_MEMORY = 0.92


@dataclass(frozen=True)
class Controller:
    """The cluster's controller.

    head_slurm_version   version that the head node will run
    head_slurm_oldest    oldest release of nodes that its srun can start jobs on
    head_cgroups         whether the head node's Slurm confines jobs with cgroups
    slurm_needs_cgroups  part of the config that needs cgroups on every machine, empty if nothing does
    node_promised_cpus, node_promised_mb   of a placeholder of an elastic pool, as slurmctld expects it; else 0
    """

    head_slurm_version: str
    head_slurm_oldest: str
    head_cgroups: bool
    slurm_needs_cgroups: str
    node_promised_cpus: int
    node_promised_mb: int


def check_node(step: Step, values: Controller) -> None:
    """Check the version and the cgroups that check.py has reported."""
    _check_promise(step, values)
    version = step.results.get("slurm_version")
    if not version:
        return
    release, controller, oldest = release_of(version), release_of(values.head_slurm_version), values.head_slurm_oldest
    newer_image = f"use a newer image for {step.host}, or {one_release_remedy(upstream_of(values.head_slurm_version))}"
    if is_older(controller, release):
        raise Failure(
            f"Slurm {release} is newer than the controller's {controller}; the controller must be the newest",
            f"use an image with Slurm {controller} or older for {step.host}, or "
            f"{one_release_remedy(upstream_of(version))}",
        )
    if is_older(release, NEEDED):
        raise Failure(f"Slurm {release} is too old: dynamic nodes need {NEEDED} or newer", newer_image)
    if oldest == controller and is_older(release, controller):
        raise Failure(
            f"Slurm {release} is older than the controller's {controller}, whose srun reaches only nodes of its "
            "own release",
            newer_image,
        )
    if is_older(release, oldest):
        raise Failure(
            f"Slurm {release} is too old for the controller's {controller}, which accepts {oldest} and newer",
            newer_image,
        )
    if values.head_cgroups and values.slurm_needs_cgroups and not step.results["cgroups"]:
        raise Failure(
            f"{values.slurm_needs_cgroups}, but systemd has no memory controller on this machine",
            f"boot {step.host} with cgroup v2, or remove that key, or set tailrack:slurm.cgroups to false for the "
            "whole cluster",
        )


def _check_promise(step: Step, values: Controller) -> None:
    """Raise Failure if a machine has less than its placeholder: Slurm would drain it at once."""
    cpus, memory_mb = step.results.get("cpus") or 0, step.results.get("memory_mb") or 0
    remedy = "write what such a machine has in tailrack:elastic of the pool, or rent a larger kind, and run its up"
    if cpus < values.node_promised_cpus:
        raise Failure(f"this machine has {cpus} CPUs, and tailrack:elastic.cpus is {values.node_promised_cpus}", remedy)
    # A kernel reserves a part of the memory that the provider names.
    if memory_mb < values.node_promised_mb * _LEAST_MEMORY:
        raise Failure(
            f"this machine has {memory_mb / 1024:.1f} GiB of memory, and tailrack:elastic.memory_gb is "
            f"{values.node_promised_mb / 1024:g}",
            remedy,
        )
