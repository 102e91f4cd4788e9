"""Remove Grafana with its database."""

from __future__ import annotations

from functools import partial

from components.node import files
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.grafana.install import remove_grafana

_STATE = ("/var/lib/tailrack-grafana", "/var/lib/private/tailrack-grafana")


def leave(step: Step) -> None:
    """Remove all of it."""
    do_each(remove_grafana, *(partial(files.remove_folder, path) for path in _STATE))
