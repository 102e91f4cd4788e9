"""What the section `mlflow` of the config says: where MLflow answers, and what it is installed from."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from components.roles.monitoring.settings_ports import Port
from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.section import Section, key, number
from components.settings.types import refuse

PORT = 5000
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_INDEX = re.compile(rf"https://{_HOST}(:[1-9][0-9]{{0,4}})?(/[A-Za-z0-9_~%+.-]+)*/?")
_FOLDER = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")


def _index(value: str) -> str:
    if "@" in value:
        refuse("has a log-in in it, which everybody who reads the config would have")
    if not (_INDEX.fullmatch(value) or _FOLDER.fullmatch(value)):
        refuse("is neither an address that begins with https:// nor the absolute path of a folder, in plain characters")
    return value.rstrip("/")


class Mlflow(Section):
    """MLflow's tracking server on the head node. A stack without this section has none."""

    port: Port = number(
        "TCP port of the head node's tailnet address at which MLflow answers",
        1024,
        65535,
        breaks="MLflow would not start",
        fix=f"write {PORT}, or another free port",
        default=PORT,
    )
    index: Annotated[str, Field(max_length=300), AfterValidator(_index)] | None = key(
        "what the head node's pip installs it from: the address of a package index, `https://...`, or a folder on the "
        "head node with the wheels; whichever it is, each file is held against its sha256",
        wants="an address or an absolute path",
        breaks="MLflow could not be installed",
        fix="write https://HOST/simple or a folder such as /srv/wheels, or leave it out",
        otherwise="the one of /etc/pip.conf on the head node, or pip's own",
        default=None,
    )


def check_mlflow(mlflow: Draft, monitoring: Draft | None, report: Report) -> None:
    """Report a port that a daemon of the monitoring has on the head node too."""
    port = mlflow.value("port")
    if monitoring is None or not isinstance(port, int):
        return
    taken = [(monitoring, name) for name in ("port", "exporter_port", "alertmanager_port")]
    if isinstance(grafana := monitoring.values.get("grafana"), Draft):
        taken.append((grafana, "port"))
    for section, name in taken:
        if section.value(name) == port:
            what = f"{report.value(mlflow.at('port'), port)} is {section.at(name)} too"
            report.add(mlflow.at("port"), what, "one of the two would not start", "write another port")
