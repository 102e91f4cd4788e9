"""What a cluster says of itself now: nodes, why some are out, and jobs; asked on its head node, wherever that is."""

from __future__ import annotations

from collections.abc import Iterable

from cli.head.connections import ways_to
from cli.pulumi.workspace import ROOT, CliError
from engine.commands import REMOTE, CommandError, Commands
from engine.events import Made

# A head node of an earlier version has no `tailrack`. As root where that is to be had, who alone may ask nodes.
NOW = """program=/usr/local/bin/tailrack
if [ ! -x $program ]; then sinfo -N -l; sinfo -R
elif [ "$(id -u)" = 0 ] || ! sudo -n true 2>/dev/null; then $program nodes
else sudo -n $program nodes; fi
squeue
if $program costs --help >/dev/null 2>&1; then $program costs --or-nothing; fi
if [ -x /usr/local/sbin/tailrack-backup ]; then /usr/local/sbin/tailrack-backup status; fi"""


def over_ssh(made: Iterable[Made], head: str, command: str) -> str:
    """Run a command on a head node over the connection of the steps that the stack has there; return what it prints.

    made   what the last run left. CliError where nothing of it was by SSH, or the command fails.
    """
    connection = ways_to(made).get(head)
    if not connection:
        raise CliError(f"the head node {head} is reached by no step of this stack: run tailrack nodes there")
    try:
        said = Commands(1, ROOT, dry_run=False).run(REMOTE, command, {"connection": connection}, {})
    except CommandError as error:
        why = " ".join(str(part).strip() for part in error.args).replace(command, "what Slurm says")
        raise CliError(
            f"the head node {head} does not say how it is now: {why}; what is above is of the last run"
        ) from None
    return said["stdout"]
