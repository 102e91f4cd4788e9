"""How the machines of a stack are made. Their code needs pulumi, so it is imported here, when the config is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pulumi

from components.host import Connection, Host
from stacks.sites import KINDS
from stacks.sites.kind import NodeSpec, Site


@dataclass(frozen=True)
class Machines:
    """Hosts by node, and the URL of the control server that comes with them; None where none does."""

    hosts: Mapping[str, Host]
    control_url: pulumi.Input[str] | None = None


def host_of(node: NodeSpec, connection: Connection | None, **own: Any) -> Host:
    """The machine of a node as a Host. `own` is what its kind knows of it besides."""
    return Host(
        name=node.name,
        site=node.site,
        connection=connection,
        features=node.features,
        gpu=node.gpu,
        fabric=node.fabric,
        rdma=node.rdma,
        price=node.price,
        **own,
    )


def machines(sites: Sequence[Site], nodes: Sequence[NodeSpec], stack: str, cluster_stack: str = "") -> Machines:
    """The machines of all nodes, made by one call of `machines` in the module of each kind.

    cluster_stack   of a pool, the stack of its cluster; empty where the stack has a cluster of its own
    """
    hosts: dict[str, Host] = {}
    control_url = None
    for kind in dict.fromkeys(site.kind for site in sites):
        own = [site for site in sites if site.kind == kind]
        names = {site.name for site in own}
        program = import_module(KINDS[kind].machines)
        # A pool's containers are in the lab of its cluster; other machines stand by themselves.
        lab = {"cluster_stack": cluster_stack} if KINDS[kind].uses_lab else {}
        made: Machines = program.machines(own, [node for node in nodes if node.site in names], stack, **lab)
        hosts |= made.hosts
        control_url = control_url if made.control_url is None else made.control_url
    return Machines(hosts, control_url)
