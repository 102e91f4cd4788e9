"""Run node exporter in a unit of tailrack's, on the tailnet address only, and tailrack-figures beside it.

A node exporter that the machine had before stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from components.node import files, systemd
from components.node.daemons import Daemon, run_daemon
from components.node.minute import Task, begin_task
from components.node.run import run
from components.node.step.step import STATE_DIR, Step
from components.roles.firewall.ports import HeldPorts, hold_ports

UNIT = "tailrack-node-exporter.service"
SETTINGS = "/etc/tailrack/node-exporter"
FIGURES = "/usr/local/lib/tailrack/figures"
# A folder of root's. Node exporter reads its files for each answer.
METRICS = f"{STATE_DIR}/metrics"


_SANDBOX = ("Nice=10", "MemoryMax=1G", "NoNewPrivileges=yes", "ProtectHome=read-only", "LockPersonality=yes")


def figures_task(*collectors: str) -> Task:
    """Return the task that collects metrics of this machine that node exporter lacks."""
    return Task("figures", (FIGURES, METRICS, *collectors), limit=120, settings=_SANDBOX)


@dataclass(frozen=True)
class ExporterValues(HeldPorts):
    """Node exporter's port and unit, and tailrack-figures."""

    monitoring_exporter_port: int
    monitoring_exporter_unit: str
    monitoring_figures: str


def start_exporter(step: Step, values: ExporterValues, address: str) -> None:
    """Run node exporter at the machine's tailnet address, and install the program of the task `figures`."""
    silence_daemon("prometheus-node-exporter", UNIT)
    files.make_folder(METRICS)
    port, unit = values.monitoring_exporter_port, f"{systemd.UNITS}/{UNIT}"
    files.write(SETTINGS, f"ADDRESS={address}\nPORT={port}")
    files.write(unit, values.monitoring_exporter_unit)
    daemon = Daemon(UNIT, address, port, "/", "monitoring.exporter_port", (unit, SETTINGS))
    run_daemon(step, daemon, partial(hold_ports, step, values))
    if files.write(FIGURES, values.monitoring_figures, 0o755):
        # Run it now instead of in a minute, without waiting for it.
        step.later.append(lambda: begin_task("figures"))


def silence_daemon(package: str, unit: str) -> None:
    """Stop and disable the unit of a package that tailrack installed.

    Only before tailrack's own unit exists, so that a person can enable the package's unit later.
    """
    if not files.exists(f"{systemd.UNITS}/{unit}") and package in files.lines(f"{STATE_DIR}/packages"):
        run("systemctl", "disable", "-q", "--now", f"{package}.service")


def remove_exporter() -> None:
    """Remove node exporter and tailrack-figures."""
    systemd.retire(UNIT)
    for path in (SETTINGS, FIGURES):
        files.remove(path)
    files.remove_folder(METRICS)
