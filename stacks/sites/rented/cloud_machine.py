"""Machines from a cloud's Pulumi package: keys, the first connection, and the Host. A kind adds the resource."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pulumi

from components.host import Connection, Host
from stacks.sites.kind import NodeSpec
from stacks.sites.machines import Machines, host_of
from stacks.sites.rented.first_key import first_key, own_key_connection, public_half
from stacks.sites.rented.model import LoginSite
from stacks.sites.rented.user_data import user_data

SSH_PORT = 22
S = TypeVar("S", bound=LoginSite)
N = TypeVar("N", bound=NodeSpec)


@dataclass(frozen=True)
class Created:
    """A machine's resource, whose deletion ends the machine, and its public address."""

    resource: pulumi.CustomResource
    address: pulumi.Output[str]


@dataclass(frozen=True)
class Request:
    """All that a kind needs to create a machine.

    user_data   for cloud-init, a secret
    tags        the site's, and those of the stack
    opts        with the parent; a change of the user data or the image replaces no machine
    """

    user_data: pulumi.Output[str]
    tags: dict[str, str]
    opts: pulumi.ResourceOptions


def cloud_machines(
    sites: Sequence[S],
    nodes: Sequence[N],
    stack: str,
    create: Callable[[S, N, Request], Created],
    ignored: Sequence[str],
) -> Machines:
    """Return the machines of all sites of a kind.

    create    creates the resource of one machine
    ignored   the resource's inputs whose change replaces no machine
    """
    hosts: dict[str, Host] = {}
    for site in sites:
        for node in (node for node in nodes if node.site == site.name):
            hosts[node.name] = CloudMachine(site, node, stack, create, ignored).host
    return Machines(hosts)


class CloudMachine(pulumi.ComponentResource):
    """One machine. `host`: it with a connection that is verified with the host key that the machine creates."""

    def __init__(
        self,
        site: LoginSite,
        node: NodeSpec,
        stack: str,
        create: Callable[[Any, Any, Request], Created],
        ignored: Sequence[str],
    ) -> None:
        super().__init__(f"tailrack:{site.kind}:Machine", node.name, None, None)
        file = site.private_key_file
        private_key = file.read_text(encoding="utf-8") if file else None
        login_key = public_half(private_key) if private_key else str(site.public_key)
        key = first_key(node.name, self)

        def data(pair: dict[str, str]) -> str:
            return user_data(login_key, pair["private"], pair["public"], root=site.user == "root")

        # Labels of some clouds allow only small letters, digits, '_' and '-'.
        tags = {**site.tags, "tailrack-stack": stack.lower().replace(".", "-"), "tailrack-site": site.name}
        opts = pulumi.ResourceOptions(parent=self, ignore_changes=list(ignored))
        created = create(site, node, Request(key.apply(data), tags, opts))
        first = Connection(
            host=created.address,
            port=SSH_PORT,
            user=site.user,
            private_key=pulumi.Output.secret(private_key) if private_key else None,
            host_key=pulumi.Output.unsecret(key).apply(lambda pair: str(pair["public"])),
        )
        connection = own_key_connection(node.name, first, created.resource, created.resource.id, self)
        self.host = host_of(node, connection, deleted_with=created.resource)
        self.register_outputs({"address": created.address})
