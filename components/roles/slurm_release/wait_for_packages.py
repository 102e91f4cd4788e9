"""The reservation of nodes that wait for their release (wait_for_packages.sh)."""

from __future__ import annotations

import re

from components.node.log import note
from components.node.run import attempt
from components.node.waiting import wait_until
from components.validation.node_names import node_names

_WAITING = "tailrack-older"
_NODES = re.compile(r" Nodes=(\S+) ")
_LIMIT = 20


def unreserve_node(name: str) -> None:
    """Remove a node from the reservation, because it has the release or leaves."""
    if not wait_until(lambda: _leave_reservation(name), _LIMIT):
        note(f"{name} is still in the reservation {_WAITING}")


def _leave_reservation(name: str) -> bool:
    shown = attempt("scontrol", "-o", "show", "reservation", _WAITING, limit=_LIMIT, quiet=True).output
    nodes = _NODES.search(shown)
    waiting = node_names(nodes[1]) if nodes else []
    if name not in waiting:
        return True
    if waiting == [name]:
        return attempt("scontrol", "delete", f"reservationname={_WAITING}").ok
    return attempt("scontrol", "update", f"reservationname={_WAITING}", f"nodes-={name}").ok
