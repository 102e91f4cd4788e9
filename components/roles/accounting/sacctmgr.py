"""Ask and change slurmdbd by sacctmgr.

It starts with a slurm.conf that has accounting, before slurmctld has taken those lines.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import Ended, attempt
from components.node.step.step import Step
from components.roles.accounting.paths import STATE

CONF = f"{STATE}/slurm.conf"
# Seconds for one command, and for a session.
_LIMIT = 60
_SESSION_LIMIT = 600
_IN_PLACE = re.compile("nothing new added|nothing deleted|has not changed", re.IGNORECASE)


def show(*words: str) -> list[list[str]]:
    """Return rows of slurmdbd. Raises Failure if it does not answer."""
    ended = _sacctmgr("-nP", "show", *words)
    if not ended.ok:
        sys.stderr.write(ended.errors)
        raise Failure(f"slurmdbd does not answer 'show {' '.join(words)}'")
    return [line.split("|") for line in ended.output.splitlines()]


def answers() -> bool:
    """Return whether slurmdbd answers."""
    return _sacctmgr("-nP", "show", "cluster", "format=Cluster").ok


def cluster_registered() -> bool:
    """Return whether slurmctld has registered with slurmdbd."""
    ended = _sacctmgr("-nP", "show", "cluster", "format=Cluster,ControlHost")
    return re.search(r"^[^|]+\|[0-9]", ended.output, re.MULTILINE) is not None


def change_all(commands: Sequence[str]) -> bool:
    """Change slurmdbd by commands, whose words have no spaces, in one session.

    Return whether it accepts all. It goes on after an error, and does not say which command failed.
    """
    for command in commands:
        note(f"sacctmgr {command}")
    session = "".join(f"{command}\n" for command in commands)
    return not commands or _sacctmgr("-i", stdin=session, limit=_SESSION_LIMIT).ok


def change(step: Step, command: str) -> None:
    """Change slurmdbd by one command. A change that is already in place is no failure."""
    ended = _sacctmgr("-i", *command.split())
    message = ended.output + ended.errors
    if ended.ok or _IN_PLACE.search(message):
        return
    lines = [line for line in message.splitlines() if line.strip(" ")]
    raise Failure(
        f"slurmdbd refuses '{command}': {' '.join(lines[:3])}",
        f"correct tailrack:accounting or tailrack:users; 'journalctl -u slurmdbd' on {step.host} has more",
    )


def delete(*words: str) -> bool:
    """Delete an entry of slurmdbd, and return whether that succeeded. Its message is written to the log."""
    ended = _sacctmgr("-i", "delete", *words)
    sys.stderr.write(ended.output + ended.errors)
    return ended.ok


def _sacctmgr(*words: str, stdin: str = "", limit: float = _LIMIT) -> Ended:
    environment = {"SLURM_CONF": files.on_disk(CONF)}
    return attempt("sacctmgr", *words, stdin=stdin, limit=limit, environment=environment, keep_errors=True)
