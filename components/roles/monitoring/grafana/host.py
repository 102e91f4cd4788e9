"""Grafana on the head node."""

import platform
import re
import secrets
from dataclasses import dataclass
from functools import partial

from components.node import files, systemd
from components.node.artifacts import Artifact, keep_artifact
from components.node.daemons import Daemon, run_daemon
from components.node.declared import DATA
from components.node.failure import Failure
from components.node.files import File
from components.node.log import printable
from components.node.run import attempt, run
from components.node.step.step import Step
from components.roles.monitoring.monitoring.prometheus import LOGIN as PROMETHEUS_LOGIN
from components.roles.network.firewall.ports import HeldPorts, hold_ports

UNIT = "tailrack-grafana.service"
FOLDER = "/etc/tailrack/grafana"
# Root's folder with one folder for each release, named by the checksum of its archive.
_PROGRAMS = "/usr/local/lib/tailrack/grafana"
_NEW = f"{_PROGRAMS}/.new"
_KEY, _PASSWORD = f"{FOLDER}/key", f"{FOLDER}/password"
_DASHBOARDS, _PROVISIONING = f"{FOLDER}/dashboards", f"{FOLDER}/provisioning"
# Grafana logs an error for each of these folders that is missing.
_PROVISIONED = ("datasources", "dashboards", "plugins", "alerting", "notifiers", "access-control")
# The database, with users' dashboards, stays where Grafana is turned off.
MADE = (
    FOLDER,
    _PROGRAMS,
    *(f"{DATA}{path}" for path in ("/var/lib/tailrack-grafana", "/var/lib/private/tailrack-grafana")),
)


@dataclass(frozen=True)
class ReleaseValues:
    """Grafana's archive and its checksum."""

    grafana_source: str
    grafana_sha256: str

    @property
    def home(self) -> str:
        """Return the folder of the release."""
        return f"{_PROGRAMS}/{self.grafana_sha256}"


def install(step: Step, values: ReleaseValues) -> None:
    """Unpack the archive to a folder that Grafana's account cannot change."""
    if files.is_folder(values.home):
        return
    files.remove_folder(_NEW)
    files.make_folder(_PROGRAMS)
    files.make_folder(_NEW, 0o700)
    source, archive = values.grafana_source, f"{_NEW}/grafana.tar.gz"
    keys = ("tailrack:monitoring.grafana.source", "tailrack:monitoring.grafana.sha256")
    keep_artifact(step, archive, Artifact(values.grafana_sha256, source, *keys))
    files.make_folder(f"{_NEW}/home")
    home = files.on_disk(f"{_NEW}/home")
    try:
        _unpack(step, source, files.on_disk(archive), home)
        _try_program(source, home)
    except Failure:
        files.remove_folder(_NEW)
        raise
    run("chmod", "-R", "u=rwX,go=rX", home)
    run("sync", "-f", home)
    files.rename(f"{_NEW}/home", values.home)
    files.remove_folder(_NEW)


def _unpack(step: Step, source: str, archive: str, home: str) -> None:
    options = ("--strip-components=1", "--no-same-owner", "--no-same-permissions")
    ended = attempt("tar", "-xf", archive, "-C", home, *options, keep_errors=True)
    if not ended.ok:
        raise Failure(
            f"cannot unpack {source}: {files.room_error(_PROGRAMS) or _last_line(ended.errors)}",
            f"make room in {_PROGRAMS} on {step.host}, or set another tailrack:monitoring.grafana.source; then run up "
            "again",
        )


def _try_program(source: str, home: str) -> None:
    ended = attempt(f"{home}/bin/grafana", "--version", keep_errors=True)
    if not ended.ok:
        raise Failure(
            f"the program from {source} does not run here ({platform.machine()}): "
            f"{printable(_last_line(ended.output + ended.errors), 200)}",
            "set tailrack:monitoring.grafana.source to the Linux archive of Grafana 9.4 or newer for this "
            "architecture, and set its sha256",
        )


def _last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


def remove_old_releases(values: ReleaseValues) -> None:
    """Remove all releases except this one."""
    for name in files.names_in(_PROGRAMS):
        if name != values.grafana_sha256:
            files.remove_folder(f"{_PROGRAMS}/{name}")


@dataclass(frozen=True)
class GrafanaValues(HeldPorts, ReleaseValues):
    """The settings of Grafana.

    grafana_password    secret: the password of its account admin
    grafana_dashboards  `file JSON`, one a line
    """

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
    # Grafana notices changes of dashboards.
    dashboards = (line.partition(" ") for line in values.grafana_dashboards.split("\n"))
    step.declare(*read, *(File(f"{_DASHBOARDS}/{name}", text) for name, _, text in dashboards))
    paths = [*(file.path for file in read), PROMETHEUS_LOGIN.password]
    daemon = Daemon(UNIT, values.head_address, values.grafana_port, "/api/health", "monitoring.grafana.port", paths)
    run_daemon(step, daemon, partial(hold_ports, step, values))
