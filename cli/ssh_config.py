"""`make ssh-config`: lines for the administrator's ~/.ssh/config, with the logins of the stack's steps."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cli.head.answer import ask_head, connections_by_machine
from cli.lab_commands import STATE_DIR
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from components.roles.commands.tailrack.host import COMMAND
from components.roles.commands.tailrack.ssh_config import Facts, Login, blocks
from stacks.sites.hosts.bastions import hops_of

_DEFAULT_PORT = 22


def config_text(deployment: Deployment, head: str) -> str:
    """Return the blocks. Raises CliError."""
    resources = deployment.made()
    connections = connections_by_machine(resources)
    if not connections.get(head):
        raise CliError(
            f"no step of this stack connects to the head node {head} by SSH: run '{COMMAND} ssh-config' there"
            if head not in connections
            else f"this machine is the head node {head}, and its ssh knows all nodes already: run 'ssh NODE'"
        )
    try:
        facts = Facts.read(json.loads(ask_head(deployment, resources, head, f"{COMMAND} ssh-config --json")))
        if facts.head != head:
            raise ValueError(f"it is called {facts.head}")
    except ValueError as error:
        raise CliError(f"the head node {head} gave no usable answer ({error}): run {deployment.make('up')}") from None
    try:
        logins = list(_logins(deployment, facts, connections))
    except ValueError as error:
        raise CliError(f"no lines for ssh: {error}; change it in the config of stack {deployment.make.stack}") from None
    return (
        f"# Printed by {deployment.make('ssh-config')}: lines for ~/.ssh/config.\n{blocks(logins, facts.authorities)}"
    )


def _logins(deployment: Deployment, facts: Facts, connections: Mapping[str, Mapping[str, Any]]) -> Iterator[Login]:
    """Yield the login of each machine. A node of another stack, a pool, has the head node's user."""
    head = connections[facts.head]
    jump = ""
    for number, hop in enumerate(hops_of(deployment.written.site_of_head), 1):
        name, key = f"{facts.head}-bastion-{number}", " ".join(str(hop.get("host_key")).split()[:2])
        yield Login(name, *_user(hop), str(hop.get("address")), _key_file(deployment, hop), jump, (key,))
        jump = name
    yield Login(facts.head, *_user(head), str(head["host"]), _identity(deployment, facts.head), jump)
    for name, (port, address) in facts.logins.items():
        user, port = _user(connections.get(name) or {**head, "port": port})
        yield Login(name, user, port, address, _identity(deployment, name))
    jump = next(iter(facts.logins), facts.head)
    for node in (node for node in facts.nodes if node not in facts.logins):
        user, _ = _user(connections.get(node) or head)
        # The port in the tailnet, through which the head node reaches it; a lab or NAT may show another one outside.
        port = facts.ports.get(node, _DEFAULT_PORT)
        yield Login(node, user, port, identity=_identity(deployment, node), jump=jump)


def _user(connection: Mapping[str, Any]) -> tuple[str, int]:
    return str(connection.get("user") or "root"), int(connection.get("port") or _DEFAULT_PORT)


def _identity(deployment: Deployment, name: str) -> str:
    """Return the file of the key for a machine, if the config or the lab has it; otherwise ssh looks for a key."""
    if file := _key_file(deployment, deployment.written.host(name) or {}):
        return file
    in_lab = STATE_DIR / deployment.lab / "id_ed25519"
    return str(in_lab) if in_lab.exists() else ""


def _key_file(deployment: Deployment, machine: Mapping[str, Any]) -> str:
    if isinstance(key := machine.get("private_key_file"), str):
        return str((deployment.workspace.config_file.parent / Path(key).expanduser()).absolute())
    return ""
