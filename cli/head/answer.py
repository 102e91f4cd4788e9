"""Run a command on a stack's head node and return its output: on this machine, in the lab, or by SSH."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from cli.head.command import on_head
from cli.output.live_status import over_ssh
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from cli.run_events import Made

LIMIT_SECONDS = 120


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
