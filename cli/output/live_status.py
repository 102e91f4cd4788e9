"""The present state of a cluster from its head node: nodes, reasons for nodes that are out, and jobs."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from cli.head.connections import connections_by_machine, sudo_password
from cli.pulumi.workspace import ROOT, CliError
from cli.run_events import Made
from engine.commands import REMOTE, CommandError, Commands

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
        result = Commands(1, ROOT, dry_run=False).run(REMOTE, command, inputs, {})
    except CommandError as error:
        reason = " ".join(str(part).strip() for part in error.args).replace(command, "the status commands")
        raise CliError(
            f"the head node {head} does not report its present state: {reason}; the tables above are of the last run"
        ) from None
    return result["stdout"]
