"""A Host is all that a component knows of a machine (docs/architecture.md, "A Host")."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.settings.network_names import AUTO
from components.settings.types import Gpu


@dataclass(frozen=True)
class Connection:
    """How to reach a machine by SSH.

    `host_key` is the server's public key as one `ssh-ed25519 AAAA...` line. It is required: without it the
    command provider would accept any server that answers at the address.

    private_key   None where the ssh-agent of whoever runs the program has it. Its socket is not in the connection: it
                  is another one in each session, and another connection would run every step again
    passphrase    of the private key, where it has one
    bastion   the machine through which it is reached; None where there is a way of its own. One hop: a bastion has none
    """

    host: pulumi.Input[str]
    port: pulumi.Input[int]
    user: pulumi.Input[str]
    private_key: pulumi.Input[str | None]
    host_key: pulumi.Input[str]
    bastion: Connection | None = None
    passphrase: pulumi.Input[str | None] = None


@dataclass(frozen=True)
class Machine:
    """Where a step runs.

    name        the machine's name; known late where it is another stack's
    connection  the way to it; None for the very machine that the program runs on: its steps are local commands
    deleted_with    the resource whose deletion takes the whole machine away (a container, a cloud instance). Steps on
                this machine are not run on delete when it goes in the same operation. None for machines that
                stay.
    scripts_folder   where the scripts of its steps lie, from the home of the login (steps/delivery.py). Each stack
                that has steps on it needs another one: a copy is not made in one piece
    """

    name: pulumi.Input[str]
    connection: Connection | None
    deleted_with: pulumi.Resource | None = None
    scripts_folder: str = ".tailrack/scripts"


@dataclass(frozen=True, kw_only=True)
class Host(Machine):
    """One machine of a stack.

    name        Slurm's node name and the machine's name on the tailnet
    site        the failure and bandwidth domain it stands in
    features    Slurm features the user asked for, on top of those every node gets
    gpu         what the config promises; the gate compares it with what the machine has
    adopt       it is in the tailnet already, and stays in it as it is, also when it leaves the cluster
    take_over   whether it may be taken from another cluster
    fabric      the IP network that jobs inside its site use: `auto`, `tailnet`, or an interface's name
    rdma        the RDMA ports that they use: `auto`, `none`, or names with commas between
    price       `2.05 USD` an hour; empty where nobody said
    relay_port  UDP port at which it is the cluster's relay; empty where it is none
    """

    name: str
    site: str
    features: tuple[str, ...] = ()
    gpu: Gpu | None = None
    adopt: bool = False
    take_over: bool = False
    fabric: str = AUTO
    rdma: str = AUTO
    relay_port: str = ""
    price: str = ""
