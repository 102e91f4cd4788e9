"""Settings of a site of containers on this machine, in their own network, and the nodes of that site."""

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from components.settings.cluster import Head
from components.settings.money import Price, price_key
from components.settings.network_names import TAILNET
from components.settings.problems import shown
from components.settings.section import Section, key, yes_no
from components.settings.types import Feature, Whole, refuse
from lab.profiles.machine import HEAD_PROFILES, PROFILES, HeadProfile, Like, Profile
from lab.subnets import is_private
from stacks.sites.kind import NodeSpec, Site, Spot, features_key, kind_key, spot_key
from stacks.sites.pools import PoolName, pool_count_key, pool_name_key, pool_node_names


def _subnet(value: object) -> object:
    if not isinstance(value, str) or "/" not in value:
        refuse("is not a network with its prefix length")
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        refuse(f"is not an IPv4 network ({shown(str(error))})")
    if network.overlaps(TAILNET):
        refuse(
            f"overlaps {TAILNET}, the range of the tailnet",
            "packets for a node's tailnet address would go to this network instead",
        )
    if not is_private(network):
        refuse("is not within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
    return network


Subnet = Annotated[ipaddress.IPv4Network, BeforeValidator(_subnet)]


def _like_key(machines: str, profiles: tuple[Profile, ...]) -> Any:
    pod = ", `pod` (a container without systemd)" if "pod" in profiles else ""
    return key(
        f"the machine that {machines}: `cloud`, `server` or `desktop` (lab/profiles){pod}, or a plain machine of a "
        "distribution other than Debian 13",
        wants=f"{', '.join(profiles[:-1])} or {profiles[-1]}",
        breaks="the lab has no image of such a machine",
        fix="write one of these, or leave it out for the lab's plain machine",
        default=None,
    )


class LabPool(Section):
    """A pool of similar nodes at a lab site: name1, name2, ... up to count."""

    name: PoolName = pool_name_key("a")
    count: Whole = pool_count_key("the pool would have no nodes, or more than a bridge network supports")
    features: tuple[Feature, ...] = features_key("Slurm features of each node, for `--constraint`")
    price_per_hour: Price | None = price_key("each node, for trying out prices (default: the site's price)")
    spot: Spot | None = spot_key("the nodes, for trying out notices,")
    bare: bool = yes_no("use an image without Slurm's packages, like a new machine", False)
    like: Profile | None = _like_key("the nodes imitate, with only that machine's software", PROFILES)


class LabSite(Site):
    """A site of containers on this machine, in their own network."""

    kind: Literal["lab"] = kind_key("lab", "containers on this machine")
    subnet: Subnet | None = key(
        "the site's network (CIDR); default: Docker chooses one",
        wants="an IPv4 network such as 172.30.1.0/24",
        breaks="the site's nodes would have no network, or a wrong one",
        fix="write a free private network with no host bits set, or leave subnet out to let Docker choose",
        default_text="Docker's choice",
        default=None,
    )
    pools: tuple[LabPool, ...] = key(
        "the site's nodes; may be empty at the head node's site",
        wants="a list of pools",
        breaks="the site would have no nodes",
        fix="write [{name: a, count: 1}]",
        default=(),
    )
    head_like: HeadProfile | None = _like_key("the head node imitates, if it is at this site", HEAD_PROFILES)


@dataclass(frozen=True)
class LabNode(NodeSpec):
    """A container of the lab.

    bare   its image contains none of the cluster's software
    like   the machine that it imitates
    """

    bare: bool
    like: Like


def nodes(site: LabSite, head: Head) -> list[LabNode]:
    """Return the nodes of the site, the head node first."""
    head_nodes = (
        [LabNode.of(site, head, head.name, bare=False, like=site.head_like or "")] if head.site == site.name else []
    )
    return head_nodes + [
        LabNode.of(
            site,
            head,
            name,
            pool.features,
            price=pool.price_per_hour,
            bare=pool.bare,
            like=pool.like or "",
            spot=pool.spot or "",
            pod=pool.like == "pod",
            source=pool,
        )
        for pool in site.pools
        for name in pool_node_names(pool.name, pool.count)
    ]
