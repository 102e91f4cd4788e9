"""Run the service on a machine that its provider may take back."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import systemd
from components.node.daemons import run_service
from components.node.files import File
from components.node.step.step import Step

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
    """Start the service."""
    if not values.node_spot:
        return
    path, unit = f"{systemd.UNITS}/{UNIT}", values.spot_notice_unit.replace("@PROVIDER@", values.node_spot)
    step.declare(
        File(PROGRAM, values.spot_notice_program, 0o755),
        File(path, unit.replace("@VERSION@", values.spot_notice_version)),
    )
    run_service(step, UNIT, [path], "reads the provider's notices")
