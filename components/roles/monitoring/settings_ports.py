"""TCP ports of what the monitoring has on the head node, and those that are others' already."""

from typing import Annotated

from pydantic import AfterValidator

from components.settings.types import Whole, refuse

# Of the cluster's other daemons, first and last of each range; a test holds them against what roles say.
TAKEN = ((2049, 2049), (6816, 6816), (6817, 6819), (20048, 20048), (60001, 60999))
PORT, EXPORTER_PORT, ALERTMANAGER_PORT, GRAFANA_PORT = 9090, 9100, 9093, 3000


def _port(value: int) -> int:
    for first, last in TAKEN:
        if first <= value <= last:
            refuse("is a port of another of the cluster's daemons", "two daemons cannot have one port")
    return value


Port = Annotated[Whole, AfterValidator(_port)]
