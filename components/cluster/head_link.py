"""All that a node needs of its head node: from the head in this stack, or from the outputs of another stack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pulumi

from components.host import Connection, Machine
from components.roles.cluster_settings import ClusterSettings
from components.settings.serialize import from_plain, shape, to_plain, whole_numbers
from components.steps.values import secret_once_known

# Whether a head node has a bastion must be known before the program runs, and outputs are known only in it.
_CONNECTION = tuple(field.name for field in fields(Connection) if field.name != "bastion")


@dataclass(frozen=True)
class HeadLink:
    """The head node as its nodes see it.

    machine        where the steps about a node run; of a local head node, the machine that the program runs on
    address        its tailnet address
    slurm_version  of its controller; slurm_oldest: the oldest release whose nodes its jobs reach
    cgroups        whether Slurm confines jobs by cgroups
    kernel_nfs     whether its kernel serves the share
    control_url    of the tailnet's control server; empty for Tailscale's own
    settings       of the cluster; from another stack's outputs without what is secret in them
    munge_key      secret
    ready          the resource after which slurmctld answers and the share is served; None for another stack's
    """

    machine: Machine
    address: pulumi.Input[str]
    slurm_version: pulumi.Input[str]
    slurm_oldest: pulumi.Input[str]
    cgroups: pulumi.Input[bool]
    kernel_nfs: pulumi.Input[bool]
    control_url: pulumi.Input[str]
    munge_key: pulumi.Input[str]
    settings: ClusterSettings
    ready: pulumi.Resource | None = None

    @property
    def header(self) -> dict[str, pulumi.Input[Any]]:
        """What scripts may read of the head node, as HEAD_ADDRESS and so on, and of its tailnet."""
        return {
            "HEAD_ADDRESS": self.address,
            "HEAD_SLURM_VERSION": self.slurm_version,
            "HEAD_SLURM_OLDEST": self.slurm_oldest,
            "HEAD_CGROUPS": self.cgroups,
            "HEAD_KERNEL_NFS": self.kernel_nfs,
            "TAILNET_CONTROL_URL": self.control_url,
        }

    def to_outputs(self) -> dict[str, pulumi.Input[Any]]:
        """Return it as values of a stack output; what is secret in it is marked as such once it is known."""
        way = self.machine.connection
        connection = {name: getattr(way, name) for name in _CONNECTION} | _hidden(way) if way else None
        return {
            "name": self.machine.name,
            "bastion": way is not None and way.bastion is not None,
            "connection": connection,
            "settings": to_plain(self.settings, ClusterSettings),
            "shape": shape(ClusterSettings),
            "munge_key": secret_once_known(pulumi.Output.from_input(self.munge_key)),
            **{name: getattr(self, name) for name in _PLAIN},
        }

    @staticmethod
    def settings_of(outputs: Mapping[str, Any]) -> ClusterSettings | None:
        """Return the cluster's settings in the value of a stack's output; None where another release wrote it."""
        wanted = {"name", "bastion", "connection", "munge_key", "settings", *_PLAIN}
        if wanted - outputs.keys() or outputs.get("shape") != shape(ClusterSettings):
            return None
        try:
            return from_plain(ClusterSettings, whole_numbers(outputs["settings"]))
        except ValueError:
            return None

    @classmethod
    def from_outputs(cls, outputs: Mapping[str, Any], settings: ClusterSettings, *, here: bool = False) -> HeadLink:
        """Return the head node of another stack, from what `to_outputs` gave there.

        settings   what `settings_of` makes of them
        here       the program runs on the head node itself: no SSH is needed, for which a local one gives no words

        RunError where the head node is local, and the program runs elsewhere.
        """
        return cls(
            machine=Machine(outputs["name"], None if here else _way_to(outputs)),
            munge_key=pulumi.Output.secret(outputs["munge_key"]),
            settings=settings,
            **{name: outputs[name] for name in _PLAIN},
        )


_PLAIN = tuple(
    field.name for field in fields(HeadLink) if field.name not in ("machine", "munge_key", "settings", "ready")
)


def _hidden(way: Connection) -> dict[str, pulumi.Input[Any]]:
    """What is secret of a connection."""
    return {
        name: secret_once_known(pulumi.Output.from_input(getattr(way, name))) for name in ("private_key", "passphrase")
    }


def _way_to(head: Mapping[str, Any]) -> Connection:
    """A connection of another stack's outputs. Secret, all but the user, who is in a command that everybody may see."""
    told = head["connection"]
    if told is None:
        raise pulumi.RunError(f"the head node {head['name']} is local: it can be used on that machine alone")
    secret = pulumi.Output.secret
    return Connection(
        host=secret(told["host"]),
        port=secret(int(told["port"])),
        user=told["user"],
        private_key=secret(told["private_key"]),
        passphrase=secret(told.get("passphrase")),  # none is left out of outputs
        host_key=secret(told["host_key"]),
    )
