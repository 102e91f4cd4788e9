"""What the section `monitoring` of the config says: where Prometheus answers, and how much it keeps."""

from itertools import combinations
from typing import Self

from components.roles.grafana.settings import Grafana
from components.roles.monitoring.settings_ports import ALERTMANAGER_PORT, EXPORTER_PORT, PORT, Port
from components.roles.monitoring.settings_receivers import Receiver, check_receiver
from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.section import Section, key, number
from components.settings.types import Whole


class Monitoring(Section):
    """Figures of all machines, collected on the head node. A stack without this section has none."""

    port: Port = number(
        "TCP port of the head node's tailnet address at which Prometheus answers",
        1024,
        65535,
        breaks="Prometheus would not start",
        fix=f"write {PORT}, or another free port",
        default=PORT,
    )
    exporter_port: Port = number(
        "TCP port of every machine's tailnet address at which its node exporter answers",
        1024,
        65535,
        breaks="no machine could be asked",
        fix=f"write {EXPORTER_PORT}, or another free port",
        default=EXPORTER_PORT,
    )
    retention_days: Whole = number(
        "how long figures are kept", 1, 3650, breaks="Prometheus would keep none, or no end", default=30
    )
    retention_gb: Whole = number(
        "how much of the head node's disk they may fill, in GiB: the oldest go first, whatever their age",
        1,
        10_000,
        breaks="they would fill the disk, or none would be kept",
        default=5,
    )
    idle_hours: Whole = number(
        "hours without a job after which a node with a price (`price_per_hour`) raises an alert",
        1,
        8760,
        breaks="nobody would be told of a machine that costs and does nothing",
        default=12,
    )
    receivers: tuple[Receiver, ...] = key(
        "who is told of alerts, by Alertmanager; left out, they are only shown",
        wants="a list of receivers",
        breaks="nobody would be told of an alert",
        fix=(
            "write [{kind: mail, to: ops@example.org, sender: cluster@example.org, smarthost: "
            '"smtp.example.org:25"}], or kind slack or webhook and set its url'
        ),
        default=(),
    )
    alertmanager_port: Port = number(
        "with `receivers`: TCP port of the head node, reached on that machine alone, at which Alertmanager answers",
        1024,
        65535,
        breaks="Alertmanager would not start",
        fix=f"write {ALERTMANAGER_PORT}, or another free port",
        default=ALERTMANAGER_PORT,
    )

    grafana: Grafana | None = key("dashboards of it all, by Grafana; left out, there are none", default=None)

    def for_export(self) -> Self:
        """Without who is told, and without dashboards: both are the head node's business."""
        return self.model_copy(update={"receivers": (), "grafana": None})


def check_monitoring(monitoring: Draft, report: Report) -> None:
    """Report two daemons at one port, which the head node has all; and receivers that nothing could reach."""
    for receiver in monitoring.items("receivers"):
        check_receiver(receiver, report)
    daemons = [(monitoring, "port", "Prometheus"), (monitoring, "exporter_port", "the node exporter")]
    if isinstance(grafana := monitoring.values.get("grafana"), Draft):
        daemons.append((grafana, "port", "Grafana"))
    for one, other in combinations(daemons, 2):
        port = one[0].value(one[1])
        if port != other[0].value(other[1]) or not isinstance(port, int):
            continue
        # Who is written down is blamed, of two the later.
        blamed, has = (other, one) if other[1] in other[0].raw else (one, other)
        at = blamed[0].at(blamed[1])
        breaks = "the head node has both, and one of them would not start"
        report.add(at, f"{report.value(at, port)} is the port of {has[2]} too", breaks, "write another port")
