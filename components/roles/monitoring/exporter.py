"""Run node exporter in a unit of tailrack's, on the tailnet address only, and tailrack-figures beside it.

A node exporter that the machine had before stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from components.node import files, systemd
from components.node.daemons import Daemon, run_daemon
from components.node.files import File
from components.node.run import run
from components.node.step.step import STATE_DIR, Step
from components.roles.firewall.hold import HeldPorts, hold_ports

UNIT = "tailrack-node-exporter.service"
SETTINGS = "/etc/tailrack/node-exporter"
FIGURES_UNIT, FIGURES_TIMER = "tailrack-figures.service", "tailrack-figures.timer"
FIGURES, FIGURES_SETTINGS = "/usr/local/lib/tailrack/figures", "/etc/tailrack/figures"
# A folder of root's. Node exporter reads its files for each answer.
METRICS = f"{STATE_DIR}/metrics"


@dataclass(frozen=True)
class ExporterValues(HeldPorts):
    """Node exporter's port and unit; tailrack-figures and its units."""

    monitoring_exporter_port: int
    monitoring_exporter_unit: str
    monitoring_figures: str
    monitoring_figures_unit: str
    monitoring_figures_timer: str


def start_exporter(step: Step, values: ExporterValues, address: str, *collectors: str) -> None:
    """Run node exporter at the machine's tailnet address, and tailrack-figures with some collectors."""
    silence_daemon("prometheus-node-exporter", UNIT)
    files.make_folder(METRICS)
    port, unit = values.monitoring_exporter_port, f"{systemd.UNITS}/{UNIT}"
    files.write(SETTINGS, f"ADDRESS={address}\nPORT={port}")
    files.write(unit, values.monitoring_exporter_unit)
    daemon = Daemon(UNIT, address, port, "/", "monitoring.exporter_port", (unit, SETTINGS))
    run_daemon(step, daemon, partial(hold_ports, step, values))
    changed = files.write_all(
        [
            File(FIGURES, values.monitoring_figures, 0o755),
            File(FIGURES_SETTINGS, f"COLLECTORS={' '.join(collectors)}"),
            File(f"{systemd.UNITS}/{FIGURES_UNIT}", values.monitoring_figures_unit),
            File(f"{systemd.UNITS}/{FIGURES_TIMER}", values.monitoring_figures_timer),
        ]
    )
    systemd.reload(FIGURES_UNIT, FIGURES_TIMER)
    systemd.enable(FIGURES_TIMER, now=True)
    if changed:
        # Run it now instead of in a minute, without waiting for it.
        run("systemctl", "start", "--no-block", FIGURES_UNIT)


def silence_daemon(package: str, unit: str) -> None:
    """Stop and disable the unit of a package that tailrack installed.

    Only before tailrack's own unit exists, so that a person can enable the package's unit later.
    """
    if not files.exists(f"{systemd.UNITS}/{unit}") and package in files.lines(f"{STATE_DIR}/packages"):
        run("systemctl", "disable", "-q", "--now", f"{package}.service")


def remove_exporter() -> None:
    """Remove node exporter and tailrack-figures."""
    systemd.retire(FIGURES_TIMER, FIGURES_UNIT, UNIT)
    for path in (SETTINGS, FIGURES_SETTINGS, FIGURES):
        files.remove(path)
    files.remove_folder(METRICS)
