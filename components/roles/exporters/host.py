"""Start the node's exporter of metrics. Nothing waits for it."""

from __future__ import annotations

from dataclasses import dataclass

from components.node.step.step import Step
from components.roles.monitoring.host import ExporterValues, start_exporter


@dataclass(frozen=True)
class NodeServicesValues(ExporterValues):
    """The node's tailnet address."""

    node_address: str


def node_services(step: Step, values: NodeServicesValues) -> None:
    """Run it."""
    start_exporter(step, values, values.node_address)
