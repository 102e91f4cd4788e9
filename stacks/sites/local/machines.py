"""The machine of kind `local`: the one that this program runs on. Nothing is made, and no connection needed."""

from collections.abc import Sequence

from components.host import Host
from stacks.sites.local.model import LocalNode, LocalSite
from stacks.sites.machines import Machines


def machines(_sites: Sequence[LocalSite], nodes: Sequence[LocalNode], _stack: str) -> Machines:
    """This machine as a Host."""
    return Machines({node.name: _host(node) for node in nodes})


def _host(node: LocalNode) -> Host:
    return Host(
        name=node.name,
        site=node.site,
        connection=None,
        features=node.features,
        gpu=node.gpu,
        adopt=node.adopt,
        take_over=node.take_over,
        fabric=node.fabric,
    )
