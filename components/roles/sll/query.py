"""Query slurmctld for a snapshot of the cluster: one request for all jobs and one for all nodes."""

from __future__ import annotations

from components.node.minute import shared_answer
from components.roles.sll.snapshot import Snapshot, read_sites, snapshot
from components.roles.tailrack_command.elastic_status import read_statuses
from components.roles.tailrack_command.job import Job, read_jobs
from components.roles.tailrack_command.slurm import SlurmError, scontrol
from components.validation.slurm_nodes import Node, read_nodes


def query(now: float) -> Snapshot:
    """Return a snapshot with the jobs that this account may see. Raise SlurmError."""
    return snapshot(*jobs_and_nodes(), now, read_statuses())


def jobs_and_nodes() -> tuple[list[Job], list[Node], dict[str, str]]:
    """Return all jobs, all nodes and the nodes' sites. Raise SlurmError."""
    jobs, nodes = shared_answer(lambda: [scontrol("show", kind, "--json") for kind in ("jobs", "nodes")])
    try:
        return read_jobs(jobs), read_nodes(nodes), read_sites(nodes)
    except ValueError:
        raise SlurmError(
            "scontrol does not print jobs or nodes as JSON here; see 'scontrol show jobs --json'"
        ) from None
