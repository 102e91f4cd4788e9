"""Run the service on a machine that its provider may take back."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, systemd
from components.node.failure import Failure
from components.node.files import File
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.waiting import wait_until

_START_SECONDS = 20
PROGRAM = "/usr/local/lib/tailrack/spot-notice"
UNIT = "tailrack-spot-notice.service"


@dataclass(frozen=True)
class SpotValues:
    """The service's program and unit.

    node_spot             the provider; empty for a machine that stays
    spot_notice_version   changes with the program's modules, and restarts it
    """

    node_spot: str
    spot_notice_program: str
    spot_notice_version: str
    spot_notice_unit: str


def compute(step: Step, values: SpotValues) -> None:
    """Start or remove the service."""
    if not values.node_spot:
        leave(step)
        return
    unit = values.spot_notice_unit.replace("@PROVIDER@", values.node_spot)
    changed = files.write_all(
        [
            File(PROGRAM, values.spot_notice_program, 0o755),
            File(f"{systemd.UNITS}/{UNIT}", unit.replace("@VERSION@", values.spot_notice_version)),
        ]
    )
    systemd.reload(UNIT)
    systemd.enable(UNIT)
    if changed or not systemd.is_active(UNIT):
        attempt("systemctl", "reset-failed", UNIT, quiet=True)
        run("systemctl", "restart", UNIT)
    if not wait_until(lambda: systemd.is_active(UNIT), _START_SECONDS):
        raise Failure(
            "the service that reads the provider's notices does not start",
            f"see 'journalctl -u {UNIT}' on {step.host}, then run up again",
        )


def leave(step: Step) -> None:
    """Remove the service."""
    systemd.retire(UNIT)
    files.remove(PROGRAM)
