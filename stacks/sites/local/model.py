"""Settings of the site of this machine, and its only node, the head node."""

from dataclasses import dataclass
from typing import Literal

from components.settings.cluster import Head
from components.settings.section import key, yes_no
from components.settings.types import Feature, GpuText
from stacks.sites.kind import NodeSpec, Site, features_key, kind_key


class LocalSite(Site):
    """The site of the machine that runs tailrack. It lists no machines, because the head node is the only one."""

    kind: Literal["local"] = kind_key("local", "this machine, as the head node")
    gpu: GpuText | None = key(
        "this machine's GPUs, like `gpu` of a host",
        wants="a GPU kind and a count such as rtx4090:1",
        breaks="Slurm would not offer its GPUs",
        fix="write KIND:COUNT (KIND in lowercase letters, digits and hyphens), or leave gpu out",
        default=None,
    )
    features: tuple[Feature, ...] = features_key("Slurm features of this machine, for `--constraint`")
    adopt: bool = yes_no("this machine is already in the cluster's tailnet, like `adopt` of a host", False)
    take_over: bool = yes_no("take this machine from another cluster, like `take_over` of a host", False)


@dataclass(frozen=True)
class LocalNode(NodeSpec):
    """The machine that runs tailrack."""

    adopt: bool
    take_over: bool


def nodes(site: LocalSite, head: Head) -> list[LocalNode]:
    """Return the head node, if it is at the site."""
    if head.site != site.name:
        return []
    return [LocalNode.of(site, head, head.name, site.features, site.gpu, adopt=site.adopt, take_over=site.take_over)]
