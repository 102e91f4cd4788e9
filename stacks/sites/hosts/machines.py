"""Machines of kind `hosts`: your own, reached by SSH with a pinned host key."""

from collections.abc import Sequence

import pulumi

from components.host import Connection, Host
from stacks.sites.hosts.model import Bastion, HostConfig, HostNode, HostsSite
from stacks.sites.machines import Machines


def machines(_sites: Sequence[HostsSite], nodes: Sequence[HostNode], _stack: str) -> Machines:
    """The machines of the config as Hosts. Their key files were checked when the config was read."""
    return Machines({node.name: _host(node) for node in nodes})


def _connection(to: HostConfig | Bastion, bastion: Connection | None = None) -> Connection:
    return Connection(
        host=to.address,
        port=to.port,
        user=to.user,
        private_key=pulumi.Output.secret(to.private_key_file.read_text(encoding="utf-8")),
        host_key=to.host_key,
        bastion=bastion,
    )


def _host(node: HostNode) -> Host:
    connection = _connection(node.host, _connection(node.bastion) if node.bastion else None)
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
