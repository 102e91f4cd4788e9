"""The first connection to a rented machine: a host key in its user data, then the key that the machine creates."""

import json
import shlex
import sys
from pathlib import Path

import pulumi
from pulumi_command import local

from components.host import Connection, Machine
from components.roles.access.ssh_trust.role import ed25519
from components.roles.program import step_program
from components.steps import composition
from components.steps.label import StepLabel
from components.steps.results import Answer
from components.steps.step import Step
from stacks import PROJECT

# The modules whose steps create the host key, on the machine.
HOST_KEY, POD_HOST_KEY = "stacks.sites.rented.host_key", "stacks.sites.rented.pod_host_key"


def first_key(name: str, parent: pulumi.Resource) -> pulumi.Output[dict[str, str]]:
    """Return a new host key for a machine's user data, `private` and `public`. It is in the state before the rent."""
    label = StepLabel(f"{name}-first-key", "", f"{name}: create a host key for the first connection")
    python = shlex.quote(str(Path(sys.prefix, "bin", "python")))
    command = local.Command(
        f"{name}-first-key",
        create=label.on(f"exec {python} -m stacks.sites.rented.new_host_key"),
        dir=str(PROJECT),
        logging=local.Logging.NONE,
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions(
            parent=parent, additional_secret_outputs=["stdout", "stderr"], ignore_changes=["create", "dir"]
        ),
    )
    secret: pulumi.Output[str] = pulumi.Output.secret(command.stdout)
    return secret.apply(json.loads)


def own_key_connection(
    name: str,
    first: Connection,
    machine: pulumi.Resource,
    identity: pulumi.Input[str],
    parent: pulumi.Resource,
    *,
    pod: bool = False,
) -> Connection:
    """Return the connection with the host key that the machine creates over its first connection.

    machine    the resource whose deletion ends the machine
    identity   changes with the machine; another machine has another key
    """
    module = POD_HOST_KEY if pod else HOST_KEY
    key = Step(
        f"{name}-host-key",
        Machine(name, first, machine),
        composition.single(module),
        {},
        label=f"{name}: create its host key",
        answer=Answer({"host_key": ed25519}, needed=True),
        parent=parent,
        once=identity,
        own_program=step_program(module),
    )
    return Connection(first.host, first.port, first.user, first.private_key, key.result["host_key"])
