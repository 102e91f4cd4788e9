"""Placeholders of an elastic pool: nodes that slurmctld has before their machines exist. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from components.roles.slurm.fragment import memory_values, node_set_lines, node_values, site_node_set
from components.roles.slurm.settings_elastic import Elastic

if TYPE_CHECKING:
    from components.host import Host

# Seconds that a node stays POWERING_DOWN by itself; the most that slurmctld takes. Slurm gives it no job meanwhile, and
# `make elastic` ends the state once the machine is gone. A short time would let a job start on a machine that leaves.
_LEAVING_SECONDS = 65000


def promised(host: Host, elastic: Elastic) -> Host:
    """Return the host with the CPUs and memory that the config promises for it."""
    return replace(host, promised_cpus=elastic.cpus, promised_mb=int(elastic.memory_gb * 1024))


def placeholder_row(host: Host, elastic: Elastic) -> list[str]:
    """Return a row for the head node (pool.py, Placeholder)."""
    host = promised(host, elastic)
    values, memory = node_values(host), memory_values(host, host.promised_cpus, host.promised_mb)
    words = [
        f"NodeName={host.name}",
        "State=CLOUD",
        f"CPUs={host.promised_cpus}",
        "Sockets=1",
        f"CoresPerSocket={host.promised_cpus // elastic.threads_per_core}",
        f"ThreadsPerCore={elastic.threads_per_core}",
        f"RealMemory={memory['NODE_REGISTERED_MB']}",
        f"MemSpecLimit={memory['NODE_RESERVED_MB']}",
        f"Feature={values['NODE_FEATURES']}",
        *([f"Gres={values['NODE_GRES']}"] if values["NODE_GRES"] else []),
    ]
    site_lines = set(node_set_lines(site_node_set(host.site), host.site))
    lines = [line for line in values["NODE_SLURM_CONF"].split("\n") if line not in site_lines]
    return [
        host.name,
        host.site,
        "\n".join([" ".join(words), *lines]),
        values["NODE_JOB_SUBMIT_LUA"],
        memory["NODE_MEMORY"],
        memory["NODE_GPU_CPUS"],
    ]


def elastic_site_lines(site: str, elastic: Elastic) -> Sequence[str]:
    """Return the lines of a site whose machines jobs bring: its NodeSet, and its partition with Slurm's time limits.

    slurmctld marks a node that is not up after ResumeTimeout as down, and requeues its jobs.
    """
    node_set, partition = node_set_lines(site_node_set(site), site)
    times = (
        f"SuspendTime={elastic.idle_minutes * 60} ResumeTimeout={elastic.boot_minutes * 60} "
        f"SuspendTimeout={_LEAVING_SECONDS}"
    )
    return [node_set, f"{partition} {times}"]
