"""A look at the cluster: one question about jobs and one about nodes, to slurmctld."""

from __future__ import annotations

from components.roles.sll.snapshot import Snapshot, read_sites, snapshot
from components.roles.tailrack_command.job import Job, read_jobs
from components.roles.tailrack_command.slurm import SlurmError, scontrol
from components.validation.slurm_nodes import Node, read_nodes


def look(now: float) -> Snapshot:
    """Ask, as whoever runs this. Raises SlurmError with what is wrong."""
    return snapshot(*jobs_and_nodes(), now)


def jobs_and_nodes() -> tuple[list[Job], list[Node], dict[str, str]]:
    """Ask for all jobs and all nodes, and return them with the nodes' sites. Raises SlurmError with what is wrong."""
    jobs, nodes = scontrol("show", "jobs", "--json"), scontrol("show", "nodes", "--json")
    try:
        return read_jobs(jobs), read_nodes(nodes), read_sites(nodes)
    except ValueError:
        raise SlurmError(
            "scontrol does not print jobs or nodes as JSON here; see 'scontrol show jobs --json'"
        ) from None
