"""Install the command `sll`."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, systemd
from components.node.step.step import Step

COMMAND = "/usr/local/bin/sll"
# A reader for all viewers, which stacks set up before 0.2.0 have.
_READER, _READER_UNITS = "/usr/local/lib/tailrack/live-reader", ("tailrack-live.socket", "tailrack-live.service")


@dataclass(frozen=True)
class SllValues:
    """The command."""

    sll_program: str


def services(step: Step, values: SllValues) -> None:
    """Install it."""
    files.write(COMMAND, values.sll_program, 0o755)
    if files.exists(_READER):
        systemd.retire(*_READER_UNITS)
        files.remove(_READER)
