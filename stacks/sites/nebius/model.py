"""Settings of a site at Nebius, and the nodes of that site."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from components.settings.cluster import Head
from components.settings.money import Price, price_key
from components.settings.section import Section, key, number, yes_no
from components.settings.types import Whole
from stacks.sites.kind import NodeSpec, kind_key
from stacks.sites.pools import new_nodes
from stacks.sites.rented.model import LoginSite, NewPool, TypeName, image_key

Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{2,100}$")]


def _id_key(thing: str, example: str) -> Any:
    return key(
        f"id of the {thing}",
        wants=f"an id such as {example}",
        breaks="Nebius could not start the machines",
        fix="copy the id from the console",
    )


def _preset_key() -> Any:
    return key(
        "the preset of GPUs, CPUs and memory, of those of the type (its platform)",
        wants="the name of a preset",
        breaks="Nebius could not start the machine",
        fix="write one such as 8gpu-128vcpu-1600gb",
    )


class NebiusPool(NewPool):
    """A pool of similar machines; `type` is the platform."""

    preset: TypeName = _preset_key()
    spot: bool = yes_no("rent at the price for preemptible machines, which Nebius can stop at any time", False)
    disk_gb: Whole = number(
        "size of the boot disk in GiB", 20, 8192, breaks="the packages and containers would not fit", default=200
    )


class NebiusHead(Section):
    """The head node's machine, if it is at this site."""

    type: TypeName = key(
        "the platform",
        wants="the name of a platform",
        breaks="Nebius could not start the machine",
        fix="write one such as cpu-d3",
    )
    preset: TypeName = _preset_key()
    price_per_hour: Price | None = price_key("the machine (default: the site's price)")


class NebiusSite(LoginSite):
    """A site in one project of Nebius, which is in one region."""

    kind: Literal["nebius"] = kind_key("nebius", "machines at Nebius, created and deleted with the stack")
    project: Id = _id_key("project, which belongs to a region", "project-e00abc")
    subnet: Id = _id_key("subnet of the project, whose security groups let SSH and UDP 41641 in", "vpcsubnet-e00abc")
    image: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,100}$")] = image_key(
        "the image's family; one with `cuda` in its name has NVIDIA's driver", "ubuntu24.04-driverless"
    )
    pools: tuple[NebiusPool, ...] = key(
        "the site's nodes; may be empty at the head node's site",
        wants="a list of pools",
        breaks="the site would have no nodes",
        fix="write [{name: gpu-, type: gpu-h100-sxm, preset: 8gpu-128vcpu-1600gb}]",
        default=(),
    )
    head: NebiusHead | None = key("the head node's machine; required if it is at this site", default=None)


@dataclass(frozen=True)
class NebiusNode(NodeSpec):
    """A machine."""

    type: str
    preset: str
    preemptible: bool
    disk_gb: int


def nodes(site: NebiusSite, head: Head) -> list[NebiusNode]:
    """Return the nodes of the site, the head node first."""
    shape = site.head
    of_head = None
    if shape:
        of_head = {"price": shape.price_per_hour, "type": shape.type, "preset": shape.preset}
        of_head |= {"preemptible": False, "disk_gb": 200}
    return new_nodes(NebiusNode, site, head, of_head, site.pools, _of_pool)


def _of_pool(pool: NebiusPool) -> dict[str, Any]:
    return {"type": pool.type, "preset": pool.preset, "preemptible": pool.spot, "disk_gb": pool.disk_gb}
