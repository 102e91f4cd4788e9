"""Install a time service if the machine has none.

The tailnet's certificates, the comparison with the head node's clock and the munge key need the right time.
"""

from __future__ import annotations

from components.node import packages, systemd
from components.node.log import note
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.clock.service import has_no_clock, time_service

# Seconds for a new time service to set the clock.
SET_SECONDS = 20


def join(step: Step) -> None:
    """Start the machine's time service."""
    if has_no_clock():
        return
    name = time_service()
    if not name:
        name = "systemd-timesyncd"
        packages.ensure(step.host, name)
        run("systemctl", "enable", "-q", name)
    if systemd.is_active(name):
        return
    if not attempt("systemctl", "start", name).ok:
        note(f"{name} does not start; see 'journalctl -u {name}'")
    elif not wait_until(_is_set, SET_SECONDS):
        note(f"{name} has not set the clock within {SET_SECONDS}s")


def _is_set() -> bool:
    return attempt("timedatectl", "show", "-p", "NTPSynchronized", "--value").output.strip() == "yes"
