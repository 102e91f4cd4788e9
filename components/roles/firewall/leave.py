"""Remove the cluster's rules after its daemons, and let the kernel assign its ports again."""

from __future__ import annotations

from components.node import files, systemd
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.firewall.hold import PORTS, PORTS_RULES
from components.roles.firewall.machine import HOLD_PROGRAM, RULES, UNIT
from components.roles.firewall.reserved import release_ports


def leave(step: Step) -> None:
    """Remove the rules and their files."""
    do_each(lambda: systemd.retire(UNIT), _remove_files, release_ports)


def _remove_files() -> None:
    for path in (RULES, PORTS, PORTS_RULES, HOLD_PROGRAM):
        files.remove(path)
