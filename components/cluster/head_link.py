"""All that a node needs of its head node: from the head in this stack, or from the outputs of another stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import pulumi

from components.host import Connection, Machine
from components.roles.role import header_name
from components.steps.step import secret_once_known

# What a node's steps read of its cluster's config: the same on all nodes, in whichever stack they are.
SHARED = (
    "ENROOT_PYXIS_ARTIFACTS",
    "ENROOT_PYXIS_NVIDIA_LIBRARIES",
    "ENROOT_PYXIS_PYXIS",
    "MUNGE_CLUSTER",
    "NFS_EXPORTS_MOUNT",
    "NFS_EXPORTS_PATH",
    "PAM_SLURM_ADOPT_WANTED",
    "SLURM_JOB_LIMIT_SECONDS",
    "TAILNET_CONTROL_URL",
    "TAILNET_TAG",
    "USERS_LINES",
)
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
    computes       whether it runs jobs too
    roles          names of the roles that the cluster's machines have
    processes      keys of slurm.conf, as the config sets them, that reach the processes of a job
    munge_key      secret
    shared         header values of the cluster's config that all its nodes have alike: those of SHARED that there are
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
    computes: pulumi.Input[bool]
    roles: pulumi.Input[Sequence[str]]
    processes: pulumi.Input[Mapping[str, str]]
    munge_key: pulumi.Input[str]
    shared: Mapping[str, pulumi.Input[Any]]
    ready: pulumi.Resource | None = None

    @property
    def header(self) -> dict[str, pulumi.Input[Any]]:
        """What scripts may read of the head node, as HEAD_ADDRESS and so on, and of its cluster."""
        plain = {header_name("head", name): getattr(self, name) for name in _PLAIN if name not in _NO_HEADER}
        return {**self.shared, **plain}

    def to_outputs(self) -> dict[str, pulumi.Input[Any]]:
        """Return it as values of a stack output; what is secret in it is marked as such once it is known."""
        way = self.machine.connection
        connection = {name: getattr(way, name) for name in _CONNECTION} | _hidden(way) if way else None
        rest = {name: getattr(self, name) for name in (*_PLAIN, "shared")} | {
            "munge_key": secret_once_known(pulumi.Output.from_input(self.munge_key))
        }
        bastion = way is not None and way.bastion is not None
        return {"name": self.machine.name, "bastion": bastion, "connection": connection, **rest}

    @staticmethod
    def lacking(outputs: Mapping[str, Any]) -> set[str]:
        """Return what is not in the value of a stack's output that `from_outputs` needs."""
        return {"name", "bastion", "connection", "munge_key", "shared", *_PLAIN} - outputs.keys()

    @classmethod
    def from_outputs(cls, outputs: pulumi.Output[Any], *, here: bool = False) -> HeadLink:
        """Return the head node of another stack, from what `to_outputs` gave there. All of it is secret.

        here   the program runs on the head node itself: no SSH is needed, which a local head node gives no words for
        """
        known: pulumi.Output[Any] = pulumi.Output.secret(outputs).apply(_with_whole_numbers)
        plain: dict[str, Any] = {name: pulumi.Output.unsecret(known[name]) for name in _PLAIN}
        return cls(
            machine=Machine(
                pulumi.Output.unsecret(known["name"]),
                None if here else _way_to(known),
            ),
            munge_key=known["munge_key"],
            shared={name: pulumi.Output.unsecret(known["shared"].apply(partial(_of, name))) for name in SHARED},
            **plain,
        )


def _of(name: str, values: Mapping[str, Any]) -> Any:
    return values.get(name)


def _with_whole_numbers(value: Any) -> Any:
    """The value with its numbers as they were: outputs have none but floating ones."""
    if isinstance(value, dict):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


_PLAIN = tuple(
    field.name for field in fields(HeadLink) if field.name not in ("machine", "munge_key", "shared", "ready")
)
# What no script reads.
_NO_HEADER = ("computes", "roles", "processes")


def _hidden(way: Connection) -> dict[str, pulumi.Input[Any]]:
    """What is secret of a connection."""
    return {
        name: secret_once_known(pulumi.Output.from_input(getattr(way, name))) for name in ("private_key", "passphrase")
    }


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
