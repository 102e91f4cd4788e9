"""Machines of kind `hosts`: your own, reached by SSH with a pinned host key."""

import os
from collections.abc import Sequence
from dataclasses import replace

import pulumi

from components.host import Connection, Host
from stacks.sites.hosts.bastions import FORWARDED, LOCAL_PORT, local_address
from stacks.sites.hosts.model import Bastion, HostConfig, HostNode, HostsSite
from stacks.sites.hosts.ssh_types import is_locked
from stacks.sites.machines import Machines, host_of


def machines(_sites: Sequence[HostsSite], nodes: Sequence[HostNode], stack: str) -> Machines:
    """Return the machines of the config as Hosts. The config checks have already read their key files.

    Raises RunError if machines are behind two bastions and `make` does not forward.
    """
    return Machines({node.name: _host(node, stack) for node in nodes})


def _bastion(bastion: Bastion, site: str, stack: str) -> Connection:
    connection = _connection(bastion)
    if not bastion.bastion:
        return connection
    if FORWARDED not in os.environ and not pulumi.runtime.is_dry_run():
        raise pulumi.RunError(f"site {site} has two bastions, and Pulumi alone uses one: run make up STACK={stack}")
    return replace(connection, host=local_address(stack, site), port=LOCAL_PORT)


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


def _host(node: HostNode, stack: str) -> Host:
    connection = _connection(node.host, _bastion(node.bastion, node.site, stack) if node.bastion else None)
    if (password := node.sudo_password) and node.host.user != "root":
        connection = replace(connection, sudo_password=pulumi.Output.secret(password.get_secret_value()))
    return host_of(node, connection)
