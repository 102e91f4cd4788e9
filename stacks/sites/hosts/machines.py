"""Machines of kind `hosts`: your own, reached by SSH with a pinned host key."""

from collections.abc import Sequence
from dataclasses import replace

import pulumi

from components.host import Connection, Host
from stacks.sites.hosts.model import Bastion, HostConfig, HostNode, HostsSite
from stacks.sites.hosts.ssh_types import is_locked
from stacks.sites.machines import Machines, host_of


def machines(_sites: Sequence[HostsSite], nodes: Sequence[HostNode], _stack: str) -> Machines:
    """Return the machines of the config as Hosts. The config checks have already read their key files."""
    return Machines({node.name: _host(node) for node in nodes})


def _connection(to: HostConfig | Bastion, bastion: Connection | None = None) -> Connection:
    file, passphrase = to.private_key_file, to.private_key_passphrase
    # The provider rejects a passphrase for a key without one; a site may have both kinds of keys.
    locked = file is not None and passphrase is not None and is_locked(file)
    return Connection(
        host=to.address,
        port=to.port,
        user=to.user,
        private_key=pulumi.Output.secret(file.read_text(encoding="utf-8")) if file else None,
        passphrase=pulumi.Output.secret(passphrase.get_secret_value()) if locked and passphrase else None,
        host_key=to.host_key,
        bastion=bastion,
    )


def _host(node: HostNode) -> Host:
    connection = _connection(node.host, _connection(node.bastion) if node.bastion else None)
    if (password := node.sudo_password) and node.host.user != "root":
        connection = replace(connection, sudo_password=pulumi.Output.secret(password.get_secret_value()))
    return host_of(node, connection, adopt=node.host.adopt, take_over=node.host.take_over)
