"""The site of the machine that the program runs on, and the one node that it gives: the head."""

from dataclasses import dataclass
from typing import Literal

from components.settings.cluster import Head
from components.settings.section import key, yes_no
from components.settings.types import Feature, GpuText
from stacks.sites.kind import NodeSpec, Site, features_key, kind_key


class LocalSite(Site):
    """The site of the machine that the program runs on. It lists no machines: the head node is the only one."""

    kind: Literal["local"] = kind_key("local", "this machine, as the head node")
    gpu: GpuText | None = key(
        "a promise of this machine's GPUs, as `gpu` of a host",
        wants="a GPU kind and a count such as rtx4090:1",
        breaks="Slurm would give its GPUs to nobody",
        fix="write KIND:COUNT (KIND in lowercase letters, digits and hyphens), or leave gpu out",
        default=None,
    )
    features: tuple[Feature, ...] = features_key("Slurm features of this machine, for `--constraint`")
    adopt: bool = yes_no("this machine is in the cluster's tailnet already, as `adopt` of a host", False)
    take_over: bool = yes_no("take this machine from the cluster that it is in, as `take_over` of a host", False)


@dataclass(frozen=True)
class LocalNode(NodeSpec):
    """The machine that the program runs on."""

    adopt: bool
    take_over: bool


def nodes(site: LocalSite, head: Head) -> list[LocalNode]:
    """The node of the site: the head, which the checks have found to stand here."""
    return [LocalNode.of(site, head, head.name, site.features, site.gpu, adopt=site.adopt, take_over=site.take_over)]
