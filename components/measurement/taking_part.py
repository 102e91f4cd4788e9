"""The nodes that take part in a measurement, and the reasons why others do not. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from components.measurement.node_states import IDLE, OUT, Node


def new_and_peers(nodes: Sequence[Node]) -> list[str]:
    """Return the new nodes, one idle peer at each of their sites, and one at another site if the scope spans sites.

    Return nothing if no node is new, a new node is busy, or a peer is missing. Nodes that are out do not count.
    """
    nodes = [node for node in nodes if node.use != OUT]
    new = [node for node in nodes if node.is_new]
    if any(node.use != IDLE for node in new):
        return []
    peers = [node for node in nodes if node.use == IDLE and not node.is_new]
    sites = _sites(new)
    first_at = {peer.site: peer for peer in reversed(peers)}
    chosen = [*new, *(first_at[site] for site in sites & first_at.keys())]
    if len(sites) == 1:
        chosen += [peer for peer in peers if peer.site not in sites][:1]
    return _if_enough([node for node in nodes if node in chosen], nodes) if new else []


def idle_nodes(nodes: Sequence[Node]) -> list[str]:
    """Return the idle nodes if they are enough."""
    return _if_enough([node for node in nodes if node.use == IDLE], nodes)


def _if_enough(chosen: Sequence[Node], nodes: Sequence[Node]) -> list[str]:
    """Return the names of nodes if there are two, and from two sites if the scope spans sites."""
    enough = len(chosen) >= 2 and len(_sites(chosen)) >= min(len(_sites(nodes)), 2)
    return [node.name for node in chosen] if enough else []


def _sites(nodes: Sequence[Node]) -> set[str]:
    return {node.site for node in nodes}


def absent(nodes: Sequence[Node], chosen: Collection[str]) -> dict[str, str]:
    """Return why nodes without other jobs are left out, by name."""
    out = {node.name: _reason(node) for node in nodes if node.use == OUT}
    idle = {node.name: "measured before" for node in nodes if node.use == IDLE and node.name not in chosen}
    return {**out, **idle}


def _reason(node: Node) -> str:
    state = node.state or "unknown to Slurm"
    return f"{state}: {node.reason}" if node.reason else state
