"""Delete a node, and register it again with other features, gres or size."""

from __future__ import annotations

from components.node import files, services
from components.node.failure import Failure
from components.node.locks import PRIVATE
from components.node.log import note
from components.node.run import attempt, run
from components.node.waiting import wait_until
from components.roles.slurm.configuration import copy_configuration, with_configuration
from components.roles.slurm.jobs import clear_jobs
from components.roles.slurm.node_state import NodeState, read_node
from components.roles.slurm.usable import REGISTER_LIMIT, drained_by_health

_CONFIGURATION = f"{PRIVATE}/slurm-recreate"
_DELETE_LIMIT = 60


def recreate_node(host: str, node: NodeState, job_limit: float) -> None:
    """Recreate this node after its jobs end. Raises Failure."""
    reason = node.reason if node.drained_by_person else ""
    # Do not set a health drain here: the health check would take it for a person's and never end it. It sets its own
    # again.
    health = bool(reason) and drained_by_health()
    if health:
        reason = ""
    note("registering again with other features, gres or size")
    if not clear_jobs(host, reason or "tailrack: registers anew", job_limit):
        raise Failure("jobs on this node do not end and cannot be requeued", f"see 'squeue -w {host}'")
    _delete_node(host)
    if not wait_until(lambda: read_node(host) is not None, REGISTER_LIMIT):
        return
    if health and not attempt("tailrack-nhc").ok:
        note("the health check (tailrack-nhc) failed; it runs again in two minutes")
    if reason:
        run("scontrol", "update", f"nodename={host}", "state=drain", f"reason={reason}")


def _delete_node(host: str) -> None:
    """Delete the node and start slurmd again. A running slurmd would register the node again, so stop it before."""
    copy_configuration(_CONFIGURATION)
    try:
        services.stop("slurmd")
        deletes = ("scontrol", "delete", f"nodename={host}")
        environment = with_configuration(_CONFIGURATION)
        deleted = wait_until(lambda: attempt(*deletes, environment=environment).ok, _DELETE_LIMIT)
        services.restart_later("slurmd")
    finally:
        files.remove_folder(_CONFIGURATION)
    if not deleted:
        raise Failure(
            f"slurmctld does not delete the old node {host}", f"see 'scontrol show node {host}' on the head node"
        )
