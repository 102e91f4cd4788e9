"""The values of a head node that nodes need, from this stack or from the outputs of another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pulumi

from components.host import Connection, Machine
from components.roles.cluster_settings import ClusterSettings
from components.settings.serialize import from_plain, shape, to_plain, whole_numbers
from components.steps.values import secret_once_known

# Without the bastion: the program must know it before it runs, and knows outputs only while it runs.
_CONNECTION = tuple(field.name for field in fields(Connection) if field.name != "bastion")


@dataclass(frozen=True)
class HeadLink:
    """The head node as its nodes see it.

    machine        the machine that runs the head node's steps for nodes; the program's own if the head node is local
    address        its tailnet address
    slurm_version  its controller's release; slurm_oldest: the oldest release of nodes that the controller accepts
    cgroups        whether cgroups confine jobs
    kernel_nfs     whether its kernel serves the share
    share_address  the tailnet address of the share's server
    control_url    URL of the tailnet's control server; empty for Tailscale's own
    settings       the cluster's settings; without secrets if they come from another stack's outputs
    munge_key      secret
    ready          the resource after which a node can register: slurmctld and the share are up; None for another
                   stack's head node
    """

    machine: Machine
    address: pulumi.Input[str]
    slurm_version: pulumi.Input[str]
    slurm_oldest: pulumi.Input[str]
    cgroups: pulumi.Input[bool]
    kernel_nfs: pulumi.Input[bool]
    share_address: pulumi.Input[str]
    control_url: pulumi.Input[str]
    munge_key: pulumi.Input[str]
    settings: ClusterSettings
    ready: pulumi.Resource | None = None

    @property
    def header(self) -> dict[str, pulumi.Input[Any]]:
        """Return the header values of the head node and its tailnet."""
        return {
            "head_address": self.address,
            "head_slurm_version": self.slurm_version,
            "head_slurm_oldest": self.slurm_oldest,
            "head_cgroups": self.cgroups,
            "head_kernel_nfs": self.kernel_nfs,
            "share_address": self.share_address,
            "tailnet_control_url": self.control_url,
        }

    def to_outputs(self) -> dict[str, pulumi.Input[Any]]:
        """Return the values of a stack output. Secrets are marked once they are known."""
        target = self.machine.connection
        connection = {name: getattr(target, name) for name in _CONNECTION} | _hidden(target) if target else None
        return {
            "name": self.machine.name,
            "bastion": target is not None and target.bastion is not None,
            "connection": connection,
            "settings": to_plain(self.settings, ClusterSettings),
            "shape": shape(ClusterSettings),
            "munge_key": secret_once_known(pulumi.Output.from_input(self.munge_key)),
            **{name: getattr(self, name) for name in _PLAIN},
        }

    @staticmethod
    def settings_of(outputs: Mapping[str, Any]) -> ClusterSettings | None:
        """Return the cluster's settings from a stack's output; None if another release wrote it."""
        wanted = {"name", "bastion", "connection", "munge_key", "settings", *_PLAIN}
        if wanted - outputs.keys() or outputs.get("shape") != shape(ClusterSettings):
            return None
        try:
            return from_plain(ClusterSettings, whole_numbers(outputs["settings"]))
        except ValueError:
            return None

    @classmethod
    def from_outputs(
        cls, outputs: Mapping[str, Any], settings: ClusterSettings, *, head_is_local: bool = False
    ) -> HeadLink:
        """Return the head node of another stack, from the values of its `to_outputs`.

        settings        the result of `settings_of`
        head_is_local   whether the program runs on the head node, so that it needs no SSH

        Raises RunError if the head node is local and the program runs on another machine.
        """
        return cls(
            machine=Machine(outputs["name"], None if head_is_local else _connection_to(outputs)),
            munge_key=pulumi.Output.secret(outputs["munge_key"]),
            settings=settings,
            **{name: outputs[name] for name in _PLAIN},
        )


_PLAIN = tuple(
    field.name for field in fields(HeadLink) if field.name not in ("machine", "munge_key", "settings", "ready")
)


def _hidden(connection: Connection) -> dict[str, pulumi.Input[Any]]:
    """Return the secrets of a connection."""
    return {
        name: secret_once_known(pulumi.Output.from_input(getattr(connection, name)))
        for name in ("private_key", "passphrase", "sudo_password")
    }


def _connection_to(head: Mapping[str, Any]) -> Connection:
    """Return a connection from another stack's outputs. All but the user is secret; the user is in a plain command."""
    values = head["connection"]
    if values is None:
        raise pulumi.RunError(f"the head node {head['name']} is local: run this stack on that machine")
    secret = pulumi.Output.secret
    return Connection(
        host=secret(values["host"]),
        port=secret(int(values["port"])),
        user=values["user"],
        private_key=secret(values["private_key"]),
        passphrase=secret(values.get("passphrase")),  # outputs leave out None
        sudo_password=secret(values["sudo_password"]) if values.get("sudo_password") else None,
        host_key=secret(values["host_key"]),
    )
