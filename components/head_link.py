"""All that a node needs of its head node: from the head in this stack, or from the outputs of another stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pulumi

from components.host import Connection, Machine
from components.roles.role import header_name

SHARED = ("USERS_LINES", "NFS_EXPORTS_PATH", "NFS_EXPORTS_MOUNT")
# Whether a head node has a bastion must be known before the program runs, and outputs are known only in it.
_CONNECTION = tuple(field.name for field in fields(Connection) if field.name != "bastion")


@dataclass(frozen=True)
class HeadLink:
    """The head node as its nodes see it.

    machine        where the steps about a node run; of a local head node, the machine that the program runs on
    address        its tailnet address
    authority      public key that signs the nodes' SSH host keys
    leave_key      public key with which it may ask a node to leave
    slurm_version  of its controller; slurm_oldest: the oldest release that the controller accepts
    cgroups        whether Slurm confines jobs by cgroups
    kernel_nfs     whether its kernel serves the share
    munge_key      secret
    shared         header values of the cluster's config that all its nodes have alike (SHARED)
    ready          the resource after which slurmctld answers and the share is served; None for another stack's
    """

    machine: Machine
    address: pulumi.Input[str]
    authority: pulumi.Input[str]
    leave_key: pulumi.Input[str]
    slurm_version: pulumi.Input[str]
    slurm_oldest: pulumi.Input[str]
    cgroups: pulumi.Input[bool]
    kernel_nfs: pulumi.Input[bool]
    munge_key: pulumi.Input[str]
    shared: Mapping[str, pulumi.Input[Any]]
    ready: pulumi.Resource | None = None

    @property
    def header(self) -> dict[str, pulumi.Input[Any]]:
        """What scripts may read of the head node, as HEAD_ADDRESS and so on, and of its cluster."""
        return {**self.shared, **{header_name("head", name): getattr(self, name) for name in _PLAIN}}

    def to_outputs(self) -> dict[str, pulumi.Input[Any]]:
        """Return it as values of a stack output, to be kept secret as a whole."""
        way = self.machine.connection
        connection = {name: getattr(way, name) for name in _CONNECTION} if way else None
        rest = {name: getattr(self, name) for name in (*_PLAIN, "munge_key", "shared")}
        return {"name": self.machine.name, "connection": connection, **rest}

    @classmethod
    def from_outputs(cls, outputs: pulumi.Output[Any], *, here: bool = False) -> HeadLink:
        """Return the head node of another stack, from what `to_outputs` gave there. All of it is secret.

        here   the program runs on the head node itself: no SSH is needed, which a local head node gives no words for
        """
        known: pulumi.Output[Any] = pulumi.Output.secret(outputs)
        plain: dict[str, Any] = {name: pulumi.Output.unsecret(known[name]) for name in _PLAIN}
        return cls(
            machine=Machine(
                pulumi.Output.unsecret(known["name"]),
                None if here else _way_to(known),
            ),
            munge_key=known["munge_key"],
            shared={name: pulumi.Output.unsecret(known["shared"][name]) for name in SHARED},
            **plain,
        )


_PLAIN = tuple(
    field.name for field in fields(HeadLink) if field.name not in ("machine", "munge_key", "shared", "ready")
)


def _way_to(head: pulumi.Output[Any]) -> Connection:
    """A connection of another stack's outputs. Secret, all but the user, who is in a command that everybody may see."""

    def words(known: Mapping[str, Any]) -> Any:
        if known["connection"] is None:
            raise pulumi.RunError(f"the head node {known['name']} is local: it can be used on that machine alone")
        return known["connection"]

    told = head.apply(words)
    return Connection(
        host=told["host"],
        port=told["port"],
        user=pulumi.Output.unsecret(told["user"]),
        private_key=told["private_key"],
        # Outputs of before there were passphrases have none.
        passphrase=told.apply(lambda known: known.get("passphrase")),
        host_key=told["host_key"],
    )
