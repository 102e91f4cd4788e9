"""Remove node exporter if the config has no monitoring.

Role exporters installs it, in a step that nothing waits for.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node.step.step import Step
from components.roles.monitoring.exporter import remove_exporter


@dataclass(frozen=True)
class NodeValues:
    """Whether the config has monitoring."""

    monitoring_enabled: bool


def node(step: Step, values: NodeValues) -> None:
    """Remove it."""
    if not values.monitoring_enabled:
        remove_exporter()
