"""`Host`: all that a component knows about a machine."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.settings.network_names import is_interface
from components.settings.types import NodeSettings


@dataclass(frozen=True)
class Connection:
    """An SSH connection to a machine.

    `host_key` is the server's public key as one `ssh-ed25519 AAAA...` line. It is required: without it the command
    provider would accept any server at the address.

    private_key   None if the user's ssh-agent has the key. The agent's socket is not in the connection: it changes with
                  each session, and a changed connection would run every step again
    passphrase    the private key's passphrase, if it has one
    sudo_password   the account's password for sudo, if sudo asks for one
    bastion       the machine through which the connection goes, or None. It has no bastion itself
    """

    host: pulumi.Input[str]
    port: pulumi.Input[int]
    user: pulumi.Input[str]
    private_key: pulumi.Input[str | None]
    host_key: pulumi.Input[str]
    bastion: Connection | None = None
    passphrase: pulumi.Input[str | None] = None
    sudo_password: pulumi.Input[str | None] = None


@dataclass(frozen=True)
class Machine:
    """A machine that runs steps.

    name            the machine's name; an Output if another stack has the machine
    connection      the connection to it; None for the machine that runs the program: its steps are local commands
    deleted_with    the resource whose deletion removes the whole machine (a container, a cloud instance). If it is
                    deleted in the same operation, the steps on the machine are not undone. None for lasting machines
    scripts_folder  the folder of its steps' scripts, relative to the login's home (steps/delivery.py). Each stack with
                    steps on the machine needs another folder, because copying is not atomic
    """

    name: pulumi.Input[str]
    connection: Connection | None
    deleted_with: pulumi.Resource | None = None
    scripts_folder: str = ".tailrack/scripts"


@dataclass(frozen=True, kw_only=True)
class Host(NodeSettings, Machine):
    """One machine of a stack.

    price       price per hour, `2.05 USD`; empty if unknown
    promised_cpus, promised_mb   of a placeholder of an elastic pool, the machine that slurmctld expects; else 0
    relay_port  UDP port if it is the cluster's relay, else empty
    """

    relay_port: str = ""
    price: pulumi.Input[str] = ""
    promised_cpus: int = 0
    promised_mb: int = 0

    @property
    def is_measured(self) -> bool:
        """Return whether it takes part in measurements. Jobs do not span pods, and a pod has no share."""
        return not self.pod and not self.login

    @property
    def has_pod_network(self) -> bool:
        """Return whether it is a pod with a network that it shares with the other pods of its site."""
        return self.pod and is_interface(self.fabric)
