"""The command `retry-jobs` on the head node, a task of every minute: restart jobs without the node that failed.

A batch job of several nodes asks for it with the word `retry` in its comment. A node counts as failed if Slurm or a
health check has taken it out since the job started. Slurm forgets an ended job after five minutes; until then the
health check, which runs every two minutes, may still find the cause.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

from components.roles.commands.sll.snapshot import jobs_and_nodes
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job, parts_of, with_parts
from components.slurm_commands.nodes import Node, node_names
from components.slurm_commands.slurm import SlurmError
from components.validation.preflight.drain import SICK_PREFIXES

PROGRAM = "/usr/local/lib/tailrack/retry-jobs"
_WORD, _MOST = "retry", 2
# The part of a job's AdminComment with the nodes that it was restarted without, one for each restart.
_PART = "without"
_FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL"})


def main(_: Sequence[str]) -> int:
    """Look at all jobs once."""
    try:
        jobs, nodes, _sites = jobs_and_nodes()
    except SlurmError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    by_name = {node.name: node for node in nodes}
    for job in jobs:
        if node := failed_node(job, by_name):
            _restart(job, node, by_name)
    return 0


def failed_node(job: Job, nodes: Mapping[str, Node]) -> str:
    """Return the node without which a job is to start again; empty if no node failed, or if too few others are left."""
    asks = _WORD in job.comment.replace(",", " ").split() and job.batch and job.requeues and job.node_count > 1
    before = _without(job)
    if not asks or len(before) >= _MOST or "COMPLETING" in job.flags:
        return ""
    if job.waits:
        # Slurm has requeued it, because it lost a node.
        found = [job.failed_node] if job.restarts and job.failed_node in nodes else []
    elif job.state in _FAILED:
        found = [name for name in node_names(job.nodes) if _has_failed(nodes.get(name), job.start)]
    else:
        found = []
    usable = [name for name in found if name not in {*before, *node_names(job.needs)}]
    return usable[0] if len(usable) == 1 and _is_possible(job, nodes, {*before, *usable}) else ""


def _without(job: Job) -> list[str]:
    return str(parts_of(job.admin_comment).get(_PART) or "").split()


def _has_failed(node: Node | None, since: int) -> bool:
    sick = node is not None and (node.by == "slurm" or node.reason.startswith(SICK_PREFIXES))
    return node is None or (node.out and sick and node.since >= since)


def _is_possible(job: Job, nodes: Mapping[str, Node], without: set[str]) -> bool:
    """Return whether enough other nodes of the job's partitions take jobs: inside one site, unless it may span more."""
    partitions = {*job.partition.split(",")}
    left = [node for node in nodes.values() if node.partitions & partitions and not node.out]
    sites = Counter(node.site if job.switches <= 1 else "" for node in left if node.name not in without)
    return max(sites.values(), default=0) >= job.node_count


def _restart(job: Job, node: str, nodes: Mapping[str, Node]) -> None:
    reason = nodes[node].reason if node in nodes else ""
    sys.stdout.write(f"restarting job {job.title} of {job.user} without {node} {reason}\n")
    cause = f"node {node} failed{f' ({reason})' if reason else ''}; it does without this node now"
    comment = with_parts(job.admin_comment, cause=cause, **{_PART: " ".join([*_without(job), node])})
    # Slurm changes no ended job. Held, so that it does not start before the node is excluded.
    if not job.waits and not slurm.requeue(job.title, "requeuehold"):
        return
    excluded = ",".join(filter(None, (job.excluded, node)))
    # The limit leaves time for the release, without which the user's job would stay held.
    slurm.update(jobid=job.title, excnodelist=excluded, admincomment=comment, starttime="now", limit=10)
    if not job.waits:
        slurm.requeue(job.title, "release")
