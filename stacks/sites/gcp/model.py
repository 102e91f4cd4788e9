"""Settings of a site in one zone of Google's Compute Engine, and the nodes of that site."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from components.settings.cluster import Head
from components.settings.section import key, number, yes_no
from components.settings.types import Whole
from stacks.sites.kind import NodeSpec, kind_key
from stacks.sites.pools import new_nodes
from stacks.sites.rented.model import LoginSite, NewPool, RentedHead


class GcpPool(NewPool):
    """A pool of similar instances."""

    spot: bool = yes_no("rent at the Spot price; Google can take the machines back at any time", False)
    disk_gb: Whole = number(
        "size of the boot disk in GB", 20, 65536, breaks="the packages and containers would not fit", default=100
    )


class GcpSite(LoginSite):
    """A site in one zone."""

    kind: Literal["gcp"] = kind_key("gcp", "Compute Engine instances, created and deleted with the stack")
    zone: Annotated[str, Field(pattern=r"^[a-z]+-[a-z]+[0-9]+-[a-z]$")] = key(
        "the zone",
        wants="a zone's name",
        breaks="Google could not start instances",
        fix="write one such as us-central1-a",
    )
    project: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{4,28}[a-z0-9]$")] | None = key(
        "the project",
        wants="a project's id",
        breaks="Google could not start instances",
        fix="write the id, or set gcp:project",
        default_text="`gcp:project`",
        default=None,
    )
    network: Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")] = key(
        "name of a network whose firewall lets SSH and UDP 41641 in",
        wants="the name of a network",
        breaks="no step could log in",
        fix="write default, or the name of your network",
        default="default",
    )
    image: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,200}$")] = key(
        "the image: `project/family`; GPUs need one with NVIDIA's driver",
        wants="an image such as ubuntu-os-cloud/ubuntu-2404-lts-amd64",
        breaks="Google could not start instances",
        fix="write PROJECT/FAMILY",
        default="ubuntu-os-cloud/ubuntu-2404-lts-amd64",
    )
    pools: tuple[GcpPool, ...] = key(
        "the site's nodes; may be empty at the head node's site",
        wants="a list of pools",
        breaks="the site would have no nodes",
        fix="write [{name: gpu-, type: a3-highgpu-8g}]",
        default=(),
    )
    head: RentedHead | None = key("the head node's machine; required if it is at this site", default=None)


@dataclass(frozen=True)
class GcpNode(NodeSpec):
    """An instance."""

    type: str
    disk_gb: int


def nodes(site: GcpSite, head: Head) -> list[GcpNode]:
    """Return the nodes of the site, the head node first."""
    shape = site.head
    return new_nodes(
        GcpNode,
        site,
        head,
        {"price": shape.price_per_hour, "type": shape.type, "disk_gb": 100} if shape else None,
        site.pools,
        lambda pool: {"type": pool.type, "spot": "gcp" if pool.spot else "", "disk_gb": pool.disk_gb},
    )
