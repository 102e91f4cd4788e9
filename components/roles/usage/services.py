"""Install the recorder on the head node."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.usage.paths import RECORDER, UNUSED_GPUS
from components.roles.usage.remove import remove_recorder


@dataclass(frozen=True)
class RecorderValues:
    """The recorder.

    usage_recorded      False without accounting or without tailrack's job scripts
    usage_unused_gpus   the limits for unused GPUs as JSON; empty without any
    """

    usage_recorded: bool
    usage_unused_gpus: str
    usage_recorder: str


def services(step: Step, values: RecorderValues) -> None:
    """Install it, or remove it."""
    if not values.usage_recorded:
        remove_recorder()
        return
    if values.usage_unused_gpus:
        files.write(UNUSED_GPUS, values.usage_unused_gpus)
    else:
        files.remove(UNUSED_GPUS)
    files.write(RECORDER, values.usage_recorder, 0o755)
