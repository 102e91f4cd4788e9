"""Install the settings of the benchmark check on the head node, if the config turns it on."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.health.register import RECORDS
from components.roles.health.remove import DEEP_CHECK_SETTINGS, remove_deep_check


@dataclass(frozen=True)
class DeepCheckSettings:
    """The settings of the check as JSON; empty if it is off."""

    head_deep_check: str


def services(step: Step, values: DeepCheckSettings) -> None:
    """Install or remove it."""
    if not values.head_deep_check:
        remove_deep_check()
        return
    files.make_folder(RECORDS, 0o700)
    files.write(DEEP_CHECK_SETTINGS, values.head_deep_check, 0o600)
