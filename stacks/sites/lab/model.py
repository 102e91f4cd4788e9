"""Settings of a site of containers on this machine, in their own network, and the nodes of that site."""

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from components.settings.cluster import Head
from components.settings.problems import Report, Stack
from components.settings.section import key
from components.settings.types import OwnNetwork, must
from lab.profiles.machine import HeadProfile, Like, Profile
from lab.subnets import is_private, room
from stacks.sites.kind import NodeSpec, Site, Spot
from stacks.sites.pools import Pool, check_not_empty, new_nodes

Subnet = Annotated[OwnNetwork, must(is_private, "is not within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")]


class LabPool(Pool):
    """A pool of containers."""

    spot: Spot | None = None
    """The provider whose notices the nodes read, for trying out notices: `aws`, `gcp` or `azure`."""
    bare: bool = False
    """Use an image without Slurm's packages, like a new machine."""
    like: Profile | None = None
    """The machine that the nodes imitate: `cloud`, `server`, `desktop` (lab/profiles), `pod`, or a distribution."""


class LabSite(Site):
    """A site of containers on this machine, in their own network."""

    kind: Literal["lab"]
    """Containers on this machine."""
    subnet: Subnet | None = key("an IPv4 network", "write one such as 172.30.1.0/24, or leave it out", default=None)
    """The site's network (CIDR); default: Docker chooses one."""
    pools: tuple[LabPool, ...] = key(fix="write [{name: a, count: 1}]", default=())
    """The site's nodes; may be empty at the head node's site."""
    head_like: HeadProfile | None = None
    """The machine that the head node imitates, if it is at this site; as `like` of a pool, without `pod`."""

    def check(self, stack: Stack, report: Report) -> None:
        check_not_empty(self, self.pools, stack, report)
        if self.subnet is not None and room(self.subnet) < (count := len(nodes(self, stack.head))):
            problem, breaks = f"has {room(self.subnet)} addresses for {count} nodes", "the last would get no address"
            report.bad((self, "subnet"), problem, breaks, "write a shorter prefix, such as /24")
        sites = self.all_of_kind(stack)
        # Sorted by address, a network that overlaps any earlier one overlaps the largest of these.
        widest: tuple[ipaddress.IPv4Network, int] | None = None
        for current in sorted((site.subnet, index) for index, site in enumerate(sites) if site.subnet is not None):
            if widest is None or not current[0].overlaps(widest[0]):
                widest = current
                continue
            (other, first), (_, last) = sorted((current, widest), key=lambda pair: pair[1])
            breaks = "Docker would reject the second network, and the sites would not be separate"
            problem = f"overlaps {report.place(sites[first])} ({report.value(report.at(sites[last]), str(other))})"
            report.bad((sites[last], "subnet"), problem, breaks, "give the site its own network")


@dataclass(frozen=True)
class LabNode(NodeSpec):
    """A container of the lab."""

    bare: bool  # its image contains none of the cluster's software
    like: Like  # the machine that it imitates


def nodes(site: LabSite, head: Head) -> list[LabNode]:
    """Return the nodes of the site, the head node first."""

    def of_pool(pool: LabPool) -> dict[str, Any]:
        return {"bare": pool.bare, "like": pool.like or "", "spot": pool.spot or "", "pod": pool.like == "pod"}

    return new_nodes(LabNode, site, head, {"bare": False, "like": site.head_like or ""}, site.pools, of_pool)
