"""Remove monitoring with all collected data and Alertmanager's history."""

from __future__ import annotations

from functools import partial

from components.node import files
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.monitoring.alerting import remove_alertmanager
from components.roles.monitoring.exporter import remove_exporter
from components.roles.monitoring.prometheus import remove_prometheus

_STATE = (
    *("/var/lib/tailrack-prometheus", "/var/lib/private/tailrack-prometheus"),
    *("/var/lib/tailrack-alertmanager", "/var/lib/private/tailrack-alertmanager"),
)


def leave(step: Step) -> None:
    """Remove the programs and their state."""
    do_each(remove_exporter, remove_prometheus, remove_alertmanager)
    do_each(*(partial(files.remove_folder, path) for path in _STATE))
