"""Install Grafana on the head node, or remove it, as the config says."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from functools import partial

from components.node import files, systemd
from components.node.daemons import Daemon, run_daemon
from components.node.files import File
from components.node.step.step import Step
from components.roles.firewall.ports import HeldPorts, hold_ports
from components.roles.grafana.install import (
    FOLDER,
    UNIT,
    ReleaseValues,
    install,
    remove_grafana,
    remove_old_releases,
)

_KEY, _PASSWORD = f"{FOLDER}/key", f"{FOLDER}/password"
_DASHBOARDS, _PROVISIONING = f"{FOLDER}/dashboards", f"{FOLDER}/provisioning"
# Grafana logs an error for each of these folders that is missing.
_PROVISIONED = ("datasources", "dashboards", "plugins", "alerting", "notifiers", "access-control")


@dataclass(frozen=True)
class GrafanaValues(HeldPorts, ReleaseValues):
    """The settings of Grafana.

    grafana_password    secret: the password of its account admin
    grafana_dashboards  `file JSON`, one a line
    """

    grafana_enabled: bool
    grafana_port: int
    grafana_prometheus_port: int
    grafana_password: str
    grafana_unit: str
    grafana_config: str
    grafana_data_source: str
    grafana_provider: str
    grafana_dashboards: str
    head_address: str

    def filled(self, text: str) -> str:
        """Return a text of Grafana's configuration with this machine's address and ports."""
        text = text.replace("@ADDRESS@", self.head_address)
        text = text.replace("@PROMETHEUS_PORT@", str(self.grafana_prometheus_port))
        return text.replace("@PORT@", str(self.grafana_port))


def services(step: Step, values: GrafanaValues) -> None:
    """Install and start the config's release."""
    if not values.grafana_enabled:
        remove_grafana()
        return
    install(step, values)
    _start(step, values)
    remove_old_releases(values)


def _start(step: Step, values: GrafanaValues) -> None:
    for folder in (FOLDER, _DASHBOARDS, _PROVISIONING, *(f"{_PROVISIONING}/{name}" for name in _PROVISIONED)):
        files.make_folder(folder)
    # Grafana encrypts the passwords of data sources with this key, so create it only once.
    key = (files.read(_KEY) or "").rstrip("\n")
    if not re.fullmatch("[0-9a-f]{64}", key):
        key = secrets.token_hex(32)
    # Grafana reads these when it starts.
    read = [
        File(f"{systemd.UNITS}/{UNIT}", values.grafana_unit.replace("@HOME@", values.home)),
        File(f"{FOLDER}/grafana.ini", values.filled(values.grafana_config)),
        File(_PASSWORD, values.grafana_password, 0o600),
        File(_KEY, key, 0o600),
        File(f"{_PROVISIONING}/datasources/tailrack.yml", values.filled(values.grafana_data_source)),
        File(f"{_PROVISIONING}/dashboards/tailrack.yml", values.grafana_provider),
    ]
    files.write_all(read)
    _write_dashboards(values.grafana_dashboards)
    paths = [file.path for file in read]
    daemon = Daemon(UNIT, values.head_address, values.grafana_port, "/api/health", "monitoring.grafana.port", paths)
    run_daemon(step, daemon, partial(hold_ports, step, values))


def _write_dashboards(lines: str) -> None:
    """Write the dashboards, and remove others. Grafana notices changes of these files."""
    texts = dict(line.split(" ", 1) for line in lines.split("\n"))
    files.write_all([File(f"{_DASHBOARDS}/{name}", text) for name, text in texts.items()])
    for name in files.names_in(_DASHBOARDS):
        if name.endswith(".json") and name not in texts:
            files.remove(f"{_DASHBOARDS}/{name}")
