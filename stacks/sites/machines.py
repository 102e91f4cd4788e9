"""Create the machines of a stack. Code of each kind needs pulumi, so it is imported only when it is used."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any

import pulumi

from components.host import Connection, Host
from components.settings.types import NodeSettings
from stacks.sites import KINDS
from stacks.sites.kind import NodeSpec, Site


@dataclass(frozen=True)
class Machines:
    """Hosts by node name.

    control_url   of the control server that comes with them, if any
    rented        facts of rented machines by node, for the stack's output
    """

    hosts: Mapping[str, Host]
    control_url: pulumi.Input[str] | None = None
    rented: Mapping[str, pulumi.Output[dict[str, Any]]] = field(default_factory=dict)


def host_of(node: NodeSpec, connection: Connection | None, **extra: Any) -> Host:
    """Return the machine of a node as a Host. `extra` has fields that only its kind knows."""
    shared = {each.name: getattr(node, each.name) for each in fields(NodeSettings)}
    return Host(connection=connection, **{**shared, "price": node.price, **extra})


def machines(
    sites: Sequence[Site],
    nodes: Sequence[NodeSpec],
    stack: str,
    cluster_stack: str = "",
    rentals: Mapping[str, Any] | None = None,
) -> Machines:
    """Return the machines of all nodes, created by `machines` in the module of each kind.

    cluster_stack   for a pool, the stack of its cluster; empty for a cluster's own stack
    rentals         by kind: what the machines of kinds that rent need (stacks.sites.rented.present.Rental)
    """
    hosts: dict[str, Host] = {}
    rented: dict[str, pulumi.Output[dict[str, Any]]] = {}
    control_url = None
    for kind in dict.fromkeys(site.kind for site in sites):
        kind_sites = [site for site in sites if site.kind == kind]
        names = {site.name for site in kind_sites}
        program = import_module(KINDS[kind].machines)
        # A pool's containers are in the lab of its cluster.
        more: dict[str, Any] = {"cluster_stack": cluster_stack} if KINDS[kind].uses_lab else {}
        more |= {"rental": (rentals or {})[kind]} if KINDS[kind].rents else {}
        kind_nodes = [node for node in nodes if node.site in names]
        created: Machines = program.machines(kind_sites, kind_nodes, stack, **more)
        hosts |= created.hosts
        rented |= created.rented
        control_url = control_url if created.control_url is None else created.control_url
    return Machines(hosts, control_url, rented)
