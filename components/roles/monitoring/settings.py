"""The section `monitoring`: ports, retention, and alert receivers."""

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
    """Metrics of all machines, collected on the head node; without this section there are none."""

    port: Port = number(
        "TCP port of Prometheus on the head node's tailnet address",
        1024,
        65535,
        breaks="Prometheus would not start",
        fix=f"write {PORT}, or another free port",
        default=PORT,
    )
    exporter_port: Port = number(
        "TCP port of the node exporter on every machine's tailnet address",
        1024,
        65535,
        breaks="Prometheus could not read any machine",
        fix=f"write {EXPORTER_PORT}, or another free port",
        default=EXPORTER_PORT,
    )
    retention_days: Whole = number(
        "days that metrics are kept",
        1,
        3650,
        breaks="Prometheus would keep no metrics, or keep them forever",
        default=30,
    )
    retention_gb: Whole = number(
        "disk space on the head node for metrics, in GiB; when it is full, the oldest are deleted at any age",
        1,
        10_000,
        breaks="metrics would fill the disk, or none would be kept",
        default=5,
    )
    idle_hours: Whole = number(
        "idle hours after which a node with a price (`price_per_hour`) raises an alert",
        1,
        8760,
        breaks="no one would learn about a machine that costs money and does nothing",
        default=12,
    )
    receivers: tuple[Receiver, ...] = key(
        "receivers of alerts, through Alertmanager; default: alerts are only shown",
        wants="a list of receivers",
        breaks="no one would get an alert",
        fix=(
            "write [{kind: mail, to: ops@example.org, sender: cluster@example.org, smarthost: "
            '"smtp.example.org:25"}], or kind slack or webhook and set its url'
        ),
        default=(),
    )
    alertmanager_port: Port = number(
        "with `receivers`: TCP port of Alertmanager, on the head node only",
        1024,
        65535,
        breaks="Alertmanager would not start",
        fix=f"write {ALERTMANAGER_PORT}, or another free port",
        default=ALERTMANAGER_PORT,
    )

    grafana: Grafana | None = key("Grafana with dashboards; default: off", default=None)

    def for_export(self) -> Self:
        """Return it without receivers and dashboards, which only the head node needs."""
        return self.model_copy(update={"receivers": (), "grafana": None})


def check_monitoring(monitoring: Draft, report: Report) -> None:
    """Report two daemons on one port of the head node, and invalid receivers."""
    for receiver in monitoring.items("receivers"):
        check_receiver(receiver, report)
    daemons = [(monitoring, "port", "Prometheus"), (monitoring, "exporter_port", "the node exporter")]
    if isinstance(grafana := monitoring.values.get("grafana"), Draft):
        daemons.append((grafana, "port", "Grafana"))
    for first, second in combinations(daemons, 2):
        port = first[0].value(first[1])
        if port != second[0].value(second[1]) or not isinstance(port, int):
            continue
        # Blame the port that the config sets; if it sets both, the second one.
        blamed, user = (second, first) if second[1] in second[0].raw else (first, second)
        path = blamed[0].path_of(blamed[1])
        breaks = "both run on the head node, and one of them would not start"
        report.add(path, f"{report.value(path, port)} is also the port of {user[2]}", breaks, "write another port")
