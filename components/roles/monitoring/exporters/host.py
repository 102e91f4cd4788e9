"""Start the node's exporter of metrics. Nothing waits for it."""

from components.node.step.step import Step
from components.roles.monitoring.monitoring.host import ExporterValues, start_exporter


def node_services(step: Step, values: ExporterValues, node_address: str) -> None:
    """Run it at the node's tailnet address."""
    start_exporter(step, values, node_address)
