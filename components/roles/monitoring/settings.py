"""What the section `monitoring` of the config says: where Prometheus answers, and how much it keeps."""

from typing import Annotated, Self

from pydantic import AfterValidator

from components.roles.monitoring.settings_receivers import Receiver, check_receiver
from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.section import Section, key, number
from components.settings.types import Whole, refuse

# TCP ports of the cluster's other daemons, first and last of each range; a test holds them against what roles say.
TAKEN = ((2049, 2049), (6816, 6816), (6817, 6819), (20048, 20048), (60001, 60999))
PORT, EXPORTER_PORT, ALERTMANAGER_PORT = 9090, 9100, 9093


def _port(value: int) -> int:
    for first, last in TAKEN:
        if first <= value <= last:
            refuse("is a port of another of the cluster's daemons", "two daemons cannot have one port")
    return value


Port = Annotated[Whole, AfterValidator(_port)]


class Monitoring(Section):
    """Figures of all machines, collected on the head node. A stack without this section has none."""

    port: Port = key(
        "TCP port of the head node's tailnet address at which Prometheus answers",
        f"a whole number from 1024 to 65535; Prometheus would not start; write {PORT}, or another free port",
        ge=1024,
        le=65535,
        default=PORT,
    )
    exporter_port: Port = key(
        "TCP port of every machine's tailnet address at which its node exporter answers",
        f"a whole number from 1024 to 65535; no machine could be asked; write {EXPORTER_PORT}, or another free port",
        ge=1024,
        le=65535,
        default=EXPORTER_PORT,
    )
    retention_days: Whole = number("how long figures are kept", 1, 3650, "Prometheus would keep none, or no end", 30)
    retention_gb: Whole = number(
        "how much of the head node's disk they may fill, in GiB: the oldest go first, whatever their age",
        1,
        10_000,
        "they would fill the disk, or none would be kept",
        5,
    )
    idle_hours: Whole = number(
        "hours without a job after which a node with a price (`price_per_hour`) raises an alert",
        1,
        8760,
        "nobody would be told of a machine that costs and does nothing",
        12,
    )
    receivers: tuple[Receiver, ...] = key(
        "who is told of alerts, by Alertmanager; left out, they are only shown",
        "a list of receivers; nobody would be told of an alert; write [{kind: mail, to: ops@example.org, sender: "
        'cluster@example.org, smarthost: "smtp.example.org:25"}], or kind slack or webhook and set its url',
        default=(),
    )
    alertmanager_port: Port = key(
        "with `receivers`: TCP port of the head node, reached on that machine alone, at which Alertmanager answers",
        "a whole number from 1024 to 65535; Alertmanager would not start; write "
        f"{ALERTMANAGER_PORT}, or another free port",
        ge=1024,
        le=65535,
        default=ALERTMANAGER_PORT,
    )

    def abroad(self) -> Self:
        """Without who is told: that is the head node's business."""
        return self.model_copy(update={"receivers": ()})


def check_monitoring(monitoring: Draft, report: Report) -> None:
    """Report two daemons at one port, which the head node has both; and receivers that nothing could reach."""
    for receiver in monitoring.items("receivers"):
        check_receiver(receiver, report)
    port, exporter = monitoring.value("port"), monitoring.value("exporter_port")
    if port != exporter or not isinstance(port, int):
        return
    blamed, other = "exporter_port", "Prometheus"
    if blamed not in monitoring.raw:
        blamed, other = "port", "the node exporter"
    what = f"{report.value(monitoring.at(blamed), port)} is the port of {other} too"
    breaks = "the head node has both, and one of them would not start"
    report.add(monitoring.at(blamed), what, breaks, "write another port")
