"""A site of containers on this machine, in a network of their own, and the nodes that it gives."""

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from components.settings.cluster import Head
from components.settings.money import Price, price_key
from components.settings.network_names import TAILNET
from components.settings.problems import shown
from components.settings.section import Section, key, named, number, yes_no
from components.settings.types import Feature, Whole, refuse
from lab.profiles.machine import PROFILES, Like, Profile
from lab.subnets import is_private
from stacks.sites.kind import NodeSpec, Site, features_key, kind_key
from stacks.sites.pools import MOST_NODES, PoolName, pool_node_names


def _subnet(value: object) -> object:
    if not isinstance(value, str) or "/" not in value:
        refuse("is not a network with its prefix length")
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        refuse(f"is not an IPv4 network ({shown(str(error))})")
    if network.overlaps(TAILNET):
        refuse(
            f"overlaps {TAILNET}, the tailnet's own range",
            "packets for a node's tailnet address would go to this network instead",
        )
    if not is_private(network):
        refuse("is not within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
    return network


Subnet = Annotated[ipaddress.IPv4Network, BeforeValidator(_subnet)]


def _like_key(what: str) -> Any:
    return key(
        f"what {what}: `cloud`, `server` or `desktop` (lab/profiles), or a plain machine of another distribution than "
        "Debian 13",
        wants=f"{', '.join(PROFILES[:-1])} or {PROFILES[-1]}",
        breaks="the lab has no image of such a machine",
        fix="write one of these, or leave it out for the lab's plain machine",
        default=None,
    )


class LabPool(Section):
    """Like nodes of a lab site: name1, name2, ... up to count."""

    name: PoolName = named(
        "the nodes' name without their number, at most 59 characters",
        breaks="its nodes are called by it, with 1, 2, ... after it",
        fix="write a name such as a",
    )
    count: Whole = number(
        "how many nodes",
        1,
        MOST_NODES,
        breaks="the pool would have no nodes, or more than one bridge network takes",
        fix="write 1 or more, or delete the pool",
        default=1,
    )
    features: tuple[Feature, ...] = features_key("Slurm features of each node, for `--constraint`")
    price_per_hour: Price | None = price_key("each node is taken to cost an hour, to try it out; left out, the site's")
    bare: bool = yes_no("start from an image without Slurm's packages, as a new machine would", False)
    like: Profile | None = _like_key("the nodes look like, each as bare as that machine is")


class LabSite(Site):
    """A site of containers on this machine, in a network of their own."""

    kind: Literal["lab"] = kind_key("lab", "containers on this machine")
    subnet: Subnet | None = key(
        "the site's network (CIDR); left out, Docker picks one",
        wants="an IPv4 network such as 172.30.1.0/24",
        breaks="the site's nodes would have no network, or a wrong one",
        fix="write a free private network with no host bits set, or leave subnet out and Docker picks one",
        otherwise="Docker's choice",
        default=None,
    )
    pools: tuple[LabPool, ...] = key(
        "the site's nodes; may be empty where the head node stands",
        wants="a list of pools",
        breaks="the site would have no nodes",
        fix="write [{name: a, count: 1}]",
        default=(),
    )
    head_like: Profile | None = _like_key("the head node looks like, where it stands here")


@dataclass(frozen=True)
class LabNode(NodeSpec):
    """A container of the lab.

    bare   nothing of the cluster's software is in its image
    like   the machine that it looks like
    """

    bare: bool
    like: Like


def nodes(site: LabSite, head: Head) -> list[LabNode]:
    """The nodes of the site, the head node first."""
    head_here = (
        [LabNode.of(site, head, head.name, bare=False, like=site.head_like or "")] if head.site == site.name else []
    )
    return head_here + [
        LabNode.of(site, head, name, pool.features, price=pool.price_per_hour, bare=pool.bare, like=pool.like or "")
        for pool in site.pools
        for name in pool_node_names(pool.name, pool.count)
    ]
