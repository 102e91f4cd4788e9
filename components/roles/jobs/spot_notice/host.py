"""Run the service on a machine that its provider may take back."""

from components.node import systemd
from components.node.daemons import run_service
from components.node.files import File
from components.node.step.step import Step

PROGRAM = "/usr/local/lib/tailrack/spot-notice"
UNIT = "tailrack-spot-notice.service"


def compute(step: Step, node_spot: str, spot_notice_version: str, spot_notice_unit: str) -> None:
    """Start the service. `node_spot` is empty for a machine that stays."""
    if not node_spot:
        return
    path, unit = f"{systemd.UNITS}/{UNIT}", spot_notice_unit.replace("@PROVIDER@", node_spot)
    step.declare(File(path, unit.replace("@VERSION@", spot_notice_version)))
    run_service(step, UNIT, [path], "reads the provider's notices")
