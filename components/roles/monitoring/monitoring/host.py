"""Monitoring on a machine: its target, node exporter and tailrack-figures; on the head node also Prometheus.

Role exporters starts a node's, in a step that nothing waits for. A node exporter that the machine had before stays.
"""

import json
from dataclasses import dataclass
from functools import partial

from components.node import files, systemd
from components.node.daemons import Daemon, run_daemon, silence_daemon
from components.node.declared import DATA
from components.node.files import File
from components.node.log import STATE_DIR
from components.node.minute import Task, begin_task
from components.node.step.step import Step
from components.roles.monitoring.monitoring.alerting import LOGIN as ALERTMANAGER_LOGIN
from components.roles.monitoring.monitoring.alerting import start_alertmanager
from components.roles.monitoring.monitoring.prometheus import SETTINGS, TARGETS, PrometheusValues, start_prometheus
from components.roles.network.firewall.ports import HeldPorts, hold_ports

# The collected data, alerts and silences stay where monitoring is turned off.
MADE = tuple(
    f"{DATA}{path}"
    for path in (
        *("/var/lib/tailrack-prometheus", "/var/lib/private/tailrack-prometheus"),
        *("/var/lib/tailrack-alertmanager", "/var/lib/private/tailrack-alertmanager"),
    )
)
EXPORTER_UNIT = "tailrack-node-exporter.service"
_EXPORTER_SETTINGS = "/etc/tailrack/node-exporter"
FIGURES = "/usr/local/lib/tailrack/figures"
# A folder of root's. Node exporter reads its files for each answer.
METRICS = f"{STATE_DIR}/metrics"
EXPORTER = (f"{systemd.UNITS}/{EXPORTER_UNIT}", _EXPORTER_SETTINGS, FIGURES, METRICS)
_SANDBOX = ("Nice=10", "MemoryMax=1G", "NoNewPrivileges=yes", "ProtectHome=read-only", "LockPersonality=yes")


@dataclass(frozen=True)
class ExporterValues(HeldPorts):
    """Node exporter's port and unit, and tailrack-figures."""

    monitoring_exporter_port: int
    monitoring_exporter_unit: str
    monitoring_figures: str


@dataclass(frozen=True)
class MonitoringValues(ExporterValues, PrometheusValues):
    """The head node, whether the config has monitoring, and settings of the head node's collectors, JSON."""

    node_name: str
    node_site: str
    monitoring_enabled: bool
    monitoring_told: str


def services(step: Step, values: MonitoringValues) -> None:
    """Start the programs."""
    write_target(values.node_name, values.node_site, values.head_address)
    if not values.monitoring_enabled:
        return
    step.declare(File(SETTINGS, values.monitoring_told, 0o600))
    start_exporter(step, values, values.head_address)
    if values.monitoring_alertmanager:
        files.make_folder(ALERTMANAGER_LOGIN.folder, 0o700)
        ALERTMANAGER_LOGIN.ensure(step)
    start_prometheus(step, values)
    # Last, so that a failure of Alertmanager does not stop Prometheus.
    if values.monitoring_alertmanager:
        start_alertmanager(step, values)


def register(step: Step, node_name: str, node_site: str, node_address: str) -> None:
    """Write a member's scrape target. It exists even without monitoring in the config."""
    write_target(node_name, node_site, node_address)


def forget(step: Step, node_name: str) -> None:
    """Remove it."""
    files.remove(f"{TARGETS}/{node_name}.json")


def node(step: Step) -> None:
    """Remove node exporter and tailrack-figures, where the config has no monitoring any more."""
    systemd.retire(EXPORTER_UNIT)
    for path in EXPORTER:
        files.remove_folder(path)


def write_target(name: str, site: str, address: str) -> None:
    """Write the target of a member at its tailnet address."""
    target = {"targets": [address], "labels": {"instance": name, "site": site}}
    files.write(f"{TARGETS}/{name}.json", json.dumps([target], separators=(",", ":"), ensure_ascii=False))


def figures_task(*collectors: str) -> Task:
    """Return the task that collects metrics of this machine that node exporter lacks."""
    return Task("figures", (FIGURES, METRICS, *collectors), limit=120, settings=_SANDBOX)


def start_exporter(step: Step, values: ExporterValues, address: str) -> None:
    """Run node exporter at the machine's tailnet address, and install the program of the task `figures`."""
    silence_daemon("prometheus-node-exporter", EXPORTER_UNIT)
    port, unit = values.monitoring_exporter_port, f"{systemd.UNITS}/{EXPORTER_UNIT}"
    settings = File(_EXPORTER_SETTINGS, f"ADDRESS={address}\nPORT={port}")
    step.declare(settings, File(unit, values.monitoring_exporter_unit), METRICS)
    files.make_folder(METRICS)
    daemon = Daemon(EXPORTER_UNIT, address, port, "/", "monitoring.exporter_port", (unit, _EXPORTER_SETTINGS))
    run_daemon(step, daemon, partial(hold_ports, step, values))
    if step.declare(File(FIGURES, values.monitoring_figures, 0o755)):
        # Run it now instead of in a minute, without waiting for it.
        step.later.append(lambda: begin_task("figures"))
