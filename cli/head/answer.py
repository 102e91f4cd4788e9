"""Run a command on a stack's head node and return its output: on this machine, in the lab, or by SSH."""

import shlex
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import ROOT, CliError
from cli.run_events import Made
from components.steps.command_line import BRINGS_SUDO
from components.steps.label import StepLabel
from engine.commands import REMOTE, CommandError, Commands
from lab.identity import container_name

LIMIT_SECONDS = 120


def on_head(deployment: Deployment, command: str, head: str) -> list[str]:
    """Return the argv that runs a command on a stack's head node: on this machine, or in its lab container.

    head   its name; a pool's config does not contain it
    """
    shell = ["bash", "-c", command]
    in_container = ["docker", "exec", container_name(deployment.lab, head), *shell]
    return shell if deployment.written.head_is_here else in_container


def ssh_to_head(deployment: Deployment) -> str:
    """Return the ssh command that connects to the head node; empty if the config alone does not determine it."""
    host = None if deployment.written.cluster_stack else deployment.written.host(deployment.written.head_name)
    if host is None or "bastion" in host or not all(isinstance(host.get(key), str) for key in ("address", "user")):
        return ""
    ssh = ["ssh"]
    if (port := host.get("port", 22)) != 22:
        ssh += ["-p", str(port)]
    if isinstance(key := host.get("private_key_file"), str):
        ssh += ["-i", str(deployment.workspace.config_file.parent / Path(key).expanduser())]
    return shlex.join([*ssh, f"{host['user']}@{host['address']}"])


def ask_head(deployment: Deployment, resources: Sequence[Made], head: str, command: str) -> str:
    """Run a bash command on the head node and return its stdout. Raises CliError with the reason of a failure.

    resources   of the last run, whose steps have the connection
    head        the name of the head node; for a pool, of its cluster's head node
    """
    if not deployment.written.head_in_lab and not deployment.written.head_is_here:
        with deployment.forwarded():
            return over_ssh(resources, head, command)
    try:
        done = subprocess.run(
            on_head(deployment, command, head),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CliError(f"the head node {head} does not answer: {error}") from None
    if done.returncode != 0:
        reason = " ".join((done.stderr or done.stdout).split())
        raise CliError(f"the command on the head node {head} failed: {reason or f'exit status {done.returncode}'}")
    return done.stdout


# It runs as root if possible, because only root may query nodes.
NOW = """program=/usr/local/bin/tailrack
if [ "$(id -u)" = 0 ] || ! sudo -n true 2>/dev/null; then $program nodes
else sudo -n $program nodes; fi
squeue
if $program costs --help >/dev/null 2>&1; then $program costs --or-nothing; fi
if [ -x /usr/local/sbin/tailrack-backup ]; then /usr/local/sbin/tailrack-backup status; fi"""


# Reads the password for sudo from stdin, always because of -k.
_ASKING = "sudo -kS -p ''"


def as_root(*words: str) -> str:
    """Return the bash command that runs words as root, by sudo with the password on stdin if sudo asks for one."""
    command = shlex.join(words)
    return (
        f'if [ "$(id -u)" = 0 ]; then {command}; elif sudo -kn true 2>/dev/null; then sudo -n {command}; '
        f"else {_ASKING} {command}; fi"
    )


def over_ssh(resources: Collection[Made], head: str, command: str) -> str:
    """Run a command on a head node over the connection of the stack's steps there; return its stdout.

    resources   of the last run. Raises CliError if no step used SSH to the head node, or the command fails.
    """
    connection = connections_by_machine(resources).get(head)
    if not connection:
        raise CliError(f"no step of this stack connects to the head node {head}: run `tailrack nodes` there")
    password = sudo_password(resources, head) if _ASKING in command else ""
    inputs = {"connection": connection, "stdin": password}
    try:
        with Commands(1, ROOT) as commands:
            return commands.run(REMOTE, command, inputs, {})["stdout"]
    except CommandError as error:
        reason = " ".join(str(part).strip() for part in error.args).replace(command, "the status commands")
        raise CliError(
            f"the head node {head} does not report its present state: {reason}; the tables above are of the last run"
        ) from None


def connections_by_machine(resources: Iterable[Made]) -> dict[str, Mapping[str, Any]]:
    """Return the connection of each machine that ran a step of the stack; it is empty for this machine.

    resources   of the last run. After an incomplete run, its first steps have the newest connection.
    """
    connections: dict[str, Mapping[str, Any]] = {}
    for resource in resources:
        if (label := StepLabel.of(resource.command)) and label.machine:
            connections[label.machine] = connections.get(label.machine) or resource.connection
    return connections


def sudo_password(resources: Iterable[Made], machine: str) -> str:
    """Return the line with the password for sudo that a machine's steps bring (steps/start.sh); empty without one."""
    for resource in resources:
        label = StepLabel.of(resource.command)
        if label and label.machine == machine and resource.command.endswith(f"{BRINGS_SUDO}'"):
            return resource.whole_stdin.partition("\n")[0] + "\n"
    return ""
