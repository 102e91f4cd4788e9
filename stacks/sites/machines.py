"""Create the machines of a stack. Code of each kind needs pulumi, so it is imported only when it is used."""

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
    """Hosts by node name, and the URL of the control server that comes with them, if any."""

    hosts: Mapping[str, Host]
    control_url: pulumi.Input[str] | None = None


def host_of(node: NodeSpec, connection: Connection | None, **extra: Any) -> Host:
    """Return the machine of a node as a Host. `extra` has fields that only its kind knows."""
    return Host(
        name=node.name,
        site=node.site,
        connection=connection,
        features=node.features,
        gpu=node.gpu,
        fabric=node.fabric,
        rdma=node.rdma,
        price=node.price,
        spot=node.spot,
        **extra,
    )


def machines(sites: Sequence[Site], nodes: Sequence[NodeSpec], stack: str, cluster_stack: str = "") -> Machines:
    """Return the machines of all nodes, created by `machines` in the module of each kind.

    cluster_stack   for a pool, the stack of its cluster; empty for a cluster's own stack
    """
    hosts: dict[str, Host] = {}
    control_url = None
    for kind in dict.fromkeys(site.kind for site in sites):
        kind_sites = [site for site in sites if site.kind == kind]
        names = {site.name for site in kind_sites}
        program = import_module(KINDS[kind].machines)
        # A pool's containers are in the lab of its cluster.
        lab = {"cluster_stack": cluster_stack} if KINDS[kind].uses_lab else {}
        kind_nodes = [node for node in nodes if node.site in names]
        created: Machines = program.machines(kind_sites, kind_nodes, stack, **lab)
        hosts |= created.hosts
        control_url = control_url if created.control_url is None else created.control_url
    return Machines(hosts, control_url)
