"""The gate: look at a machine before anything on it is changed, and stop it there if a rule does not hold."""

from __future__ import annotations

import pulumi

from components.config_files.slurm_versions import oldest_accepted
from components.host import Host
from components.remote import Step

# A look takes seconds; only a first `apt-get update` takes longer.
LIMIT_SECONDS = 300


def gate(
    host: Host,
    *,
    parent: pulumi.Resource,
    controller_facts: pulumi.Output[dict[str, object]] | None = None,
    cgroups: pulumi.Input[bool] | None = None,
) -> Step:
    """Return the step whose result is the machine's facts.

    Facts: os, architecture, kernel, cpus, memory_mb, disk_free_mb, gpus, kernel_nfs_server, kernel_nfs_client,
    cgroups, tun, slurm_version and munge_version (installed or to be installed).

    controller_facts   facts of the head node; None for the head node itself. A node whose Slurm the controller would
                       not accept fails here, before any daemon of it starts.
    cgroups            whether the cluster's Slurm confines jobs by cgroups
    """
    values: dict[str, pulumi.Input[object]] = {
        "WANT_GPU_KIND": host.gpu.kind if host.gpu else "",
        "WANT_GPU_COUNT": host.gpu.count if host.gpu else 0,
    }
    if controller_facts is not None:
        version = controller_facts.apply(lambda facts: str(facts["slurm_version"]))
        values["CONTROLLER_SLURM"] = version
        values["SLURM_OLDEST"] = version.apply(oldest_accepted)
    if cgroups is not None:
        values["WANT_CGROUPS"] = pulumi.Output.from_input(cgroups).apply(lambda wanted: "yes" if wanted else "")
    return Step(
        f"{host.name}-gate",
        host,
        "gate",
        values,
        label=f"{host.name}: look at the machine",
        parent=parent,
        limit_seconds=LIMIT_SECONDS,
    )
