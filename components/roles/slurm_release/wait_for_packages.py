"""Reserve nodes that wait for their release.

Since 25.11 srun uses only its own machine's release (components/roles/slurm/versions.py), so with such a release on the
head node it cannot start steps on older nodes. No job starts there until the node has the release and leaves the
reservation; running jobs continue.
"""

from __future__ import annotations

import re

from components.node.log import note
from components.node.run import attempt
from components.node.waiting import wait_until
from components.roles.slurm.releases import is_older, release_of
from components.validation.slurm_nodes import node_names

_WAITING = "tailrack-older"
# The first release with such an srun.
_ONE_RELEASE_SINCE = "25.11"
_NODES = re.compile(r" Nodes=(\S+) ")
_LIMIT = 20


def hold_older_nodes(host: str, version: str) -> bool:
    """Reserve older nodes, and return whether slurmctld did it.

    It runs on the head node while the old controller still answers.

    version   of the new release
    """
    release = release_of(version)
    if is_older(release, _ONE_RELEASE_SINCE):
        return True
    listed = attempt("sinfo", "-h", "-a", "-N", "-o", "%N %v", limit=_LIMIT).output
    rows = [line.split() for line in listed.splitlines()]
    nodes = ",".join(sorted({row[0] for row in rows if row[0] != host and not row[-1].startswith(f"{release}.")}))
    if not nodes:
        return True
    note(f"no job starts on {nodes} until these nodes have the release")
    arguments = (f"reservationname={_WAITING}", f"nodes={nodes}")
    if _waiting_nodes():
        return attempt("scontrol", "update", *arguments).ok
    more = ("starttime=now", "duration=infinite", "users=root", "flags=maint,ignore_jobs")
    return attempt("scontrol", "create", "reservation", *arguments, *more).ok


def unreserve_node(name: str) -> None:
    """Remove a node from the reservation, because it has the release or leaves."""
    if not wait_until(lambda: _leave_reservation(name), _LIMIT):
        note(f"{name} is still in the reservation {_WAITING}")


def _leave_reservation(name: str) -> bool:
    waiting = _waiting_nodes()
    if name not in waiting:
        return True
    if waiting == [name]:
        return attempt("scontrol", "delete", f"reservationname={_WAITING}").ok
    return attempt("scontrol", "update", f"reservationname={_WAITING}", f"nodes-={name}").ok


def _waiting_nodes() -> list[str]:
    shown = attempt("scontrol", "-o", "show", "reservation", _WAITING, limit=_LIMIT, quiet=True).output
    nodes = _NODES.search(shown)
    return node_names(nodes[1]) if nodes else []
