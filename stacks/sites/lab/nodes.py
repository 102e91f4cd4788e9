"""The nodes of a lab site: those of its pools, and one more where the head node stands."""

from __future__ import annotations

from dataclasses import dataclass

from components.settings.cluster import Head
from components.settings.draft import Draft
from stacks.sites.kind import Claim, NodeSpec
from stacks.sites.lab.model import MOST_NODES, LabSite


@dataclass(frozen=True)
class LabNode(NodeSpec):
    """A container of the lab; `bare`: nothing of the cluster's software is in its image."""

    bare: bool


def pool_node_names(pool: str, count: int) -> tuple[str, ...]:
    """The names of a pool's nodes: the pool's name and 1, 2, ... up to `count`."""
    return tuple(f"{pool}{index}" for index in range(1, count + 1))


def claims(site: Draft, _head: Draft) -> list[Claim]:
    """The nodes of the site's pools; a count that cannot be read counts as 1."""
    found = []
    for pool in site.items("pools"):
        name, path = pool.text("name"), pool.at("name")
        size = min(max(pool.whole("count") or 1, 1), MOST_NODES)
        found += [Claim(node, path) for node in (pool_node_names(name, size) if name is not None else [None])]
    return found


def nodes(site: LabSite, head: Head) -> list[LabNode]:
    """The nodes of the site, the head node first."""
    head_here = [LabNode(head.name, site.name, (), None, True, head.compute, False)] if head.site == site.name else []
    return head_here + [
        LabNode(name, site.name, pool.features, None, False, True, pool.bare)
        for pool in site.pools
        for name in pool_node_names(pool.name, pool.count)
    ]
