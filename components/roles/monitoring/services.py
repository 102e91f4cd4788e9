"""Run Prometheus on the head node, if the config turns monitoring on."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.monitoring.alerting import ensure_password, remove_alertmanager, start_alertmanager
from components.roles.monitoring.exporter import ExporterValues, remove_exporter, start_exporter
from components.roles.monitoring.prometheus import SETTINGS, PrometheusValues, remove_prometheus, start_prometheus
from components.roles.monitoring.target import Member, write_target


@dataclass(frozen=True)
class MonitoringValues(ExporterValues, PrometheusValues, Member):
    """Whether the config has monitoring, and settings of the head node's collectors, JSON."""

    monitoring_enabled: bool
    monitoring_told: str


def services(step: Step, values: MonitoringValues) -> None:
    """Start or remove the programs."""
    write_target(values, values.head_address)
    if not values.monitoring_enabled:
        remove_exporter()
        remove_prometheus()
        remove_alertmanager()
        return
    files.write(SETTINGS, values.monitoring_told, 0o600)
    start_exporter(step, values, values.head_address)
    if not values.monitoring_alertmanager:
        start_prometheus(step, values)
        remove_alertmanager()
        return
    ensure_password()
    start_prometheus(step, values)
    # Last, so that a failure of Alertmanager does not stop Prometheus.
    start_alertmanager(step, values)
