"""Ask slurmctld on the head node, start it, and make it read its files again. It is reconfigured, not restarted."""

from __future__ import annotations

import re

from components.node import files
from components.node.log import note
from components.node.run import attempt, succeeds
from components.node.systemd import is_active
from components.node.waiting import sleep, wait_until
from components.roles.slurm.paths import TAKEN

# Seconds for slurmctld to stay up with new files.
_STAY_LIMIT = 60
_MOST_LINES = 12


def answers() -> bool:
    """Return whether slurmctld answers."""
    return "is UP" in attempt("scontrol", "ping", quiet=True).output


def _is_silent() -> bool:
    """Return whether slurmctld does not answer. It is also False if scontrol cannot read the files itself."""
    return "is DOWN" in attempt("scontrol", "ping", quiet=True).output


def _process() -> str:
    return attempt("systemctl", "show", "-P", "MainPID", "slurmctld").output.strip()


def _stays() -> bool:
    """Return whether slurmctld keeps running.

    One that starts is ready for systemd and answers before it has read all its files.
    """
    process = _process()
    if not answers():
        return False
    sleep(3)
    return is_active("slurmctld") and _process() == process


def has_node(name: str) -> bool:
    """Return whether slurmctld has a node."""
    return succeeds("scontrol", "show", "node", name)


def node_deleted(name: str) -> bool:
    """Delete a node, and return whether slurmctld no longer has it."""
    return not has_node(name) or attempt("scontrol", "delete", f"nodename={name}").ok


def reconfigure() -> str:
    """Have the running slurmctld read its files again. Return why it does not; empty if it does."""
    process = _process()
    note("reconfiguring slurmctld")
    if attempt("scontrol", "reconfigure").ok:
        return ""
    # Check for silence first: the watchdog may restart a hanging slurmctld before anything answers.
    if not _is_silent() and _process() == process:
        return "slurmctld rejects the new configuration and keeps the old one"
    # It has ended, or it hangs and its watchdog ends it; it restarts with these files.
    if wait_until(_stays, _STAY_LIMIT):
        return ""
    return "slurmctld rejects the new configuration; it restarts with the old one"


def start() -> str:
    """Start slurmctld with its present files. Return why it does not; empty if it does."""
    # Where it has never run, there is no old configuration to restore, so do not wait.
    if attempt("systemctl", "restart", "slurmctld").ok and (
        not files.is_folder(TAKEN) or wait_until(_stays, _STAY_LIMIT)
    ):
        return ""
    return "slurmctld does not start with this configuration"


def errors(since: int) -> list[str]:
    """Return slurmctld's errors since a time, or its last lines if it logged no errors."""
    attempt("journalctl", "--sync")
    journal = ("journalctl", "-u", "slurmctld", "--since", f"@{since}", "-o", "cat", "--no-pager")
    lines = attempt(*journal).output.splitlines()
    return ([line for line in lines if re.search(r"(error|fatal): ", line)] or lines)[-_MOST_LINES:]
