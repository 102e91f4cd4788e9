"""Default TCP ports of the monitoring on the head node, and ports of other daemons."""

from typing import Annotated

from pydantic import AfterValidator

from components.settings.types import Whole, refuse

# Port ranges of the cluster's other daemons, first and last; a test compares them with the roles' ports.
TAKEN = ((2049, 2049), (6814, 6814), (6816, 6816), (6817, 6819), (20048, 20048), (60001, 60999))
PORT, EXPORTER_PORT, ALERTMANAGER_PORT, GRAFANA_PORT = 9090, 9100, 9093, 3000


def _port(value: int) -> int:
    for first, last in TAKEN:
        if first <= value <= last:
            refuse("is a port of another daemon of the cluster", "two daemons cannot share a port")
    return value


Port = Annotated[Whole, AfterValidator(_port)]
