"""Machines of kind `hosts`: your own, reached by SSH with a pinned host key."""

from collections.abc import Sequence

import pulumi

from components.host import Connection, Host
from stacks.sites.hosts.model import HostNode, HostsSite
from stacks.sites.machines import Machines


def machines(_sites: Sequence[HostsSite], nodes: Sequence[HostNode], _stack: str) -> Machines:
    """The machines of the config as Hosts. Their key files were checked when the config was read."""
    return Machines({node.name: _host(node) for node in nodes})


def _host(node: HostNode) -> Host:
    connection = Connection(
        host=node.host.address,
        port=node.host.port,
        user=node.host.user,
        private_key=pulumi.Output.secret(node.host.private_key_file.read_text(encoding="utf-8")),
        host_key=node.host.host_key,
    )
    return Host(
        name=node.name,
        site=node.site,
        connection=connection,
        features=node.features,
        gpu=node.gpu,
        adopt=node.host.adopt,
        take_over=node.host.take_over,
        fabric=node.fabric,
    )
