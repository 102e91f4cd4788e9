"""Install the recorder on the head node."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, systemd
from components.node.files import File
from components.node.step.step import Step
from components.roles.usage.paths import RECORD_UNITS, RECORDER, UNUSED_GPUS
from components.roles.usage.remove import remove_recorder


@dataclass(frozen=True)
class RecorderValues:
    """The recorder and its units.

    usage_recorded      False without accounting or without tailrack's job scripts
    usage_unused_gpus   the limits for unused GPUs as JSON; empty without any
    """

    usage_recorded: bool
    usage_unused_gpus: str
    usage_recorder: str
    usage_record_unit: str
    usage_record_timer: str


def services(step: Step, values: RecorderValues) -> None:
    """Install it, or remove it."""
    if not values.usage_recorded:
        remove_recorder()
        return
    if values.usage_unused_gpus:
        files.write(UNUSED_GPUS, values.usage_unused_gpus)
    else:
        files.remove(UNUSED_GPUS)
    unit, timer = RECORD_UNITS
    files.write_all(
        [
            File(RECORDER, values.usage_recorder, 0o755),
            File(f"{systemd.UNITS}/{unit}", values.usage_record_unit),
            File(f"{systemd.UNITS}/{timer}", values.usage_record_timer),
        ]
    )
    systemd.reload(unit, timer)
    systemd.enable(timer, now=True)
