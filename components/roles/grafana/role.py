"""Grafana on the head node: dashboards for Prometheus' metrics."""

from __future__ import annotations

import json

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import DYNAMIC, FOLDER, Holder, Role, template

UNIT = "tailrack-grafana.service"
DASHBOARDS = FOLDER / "grafana" / "dashboards"


def role(settings: ClusterSettings) -> Role:
    """Return the role, also without Grafana in the config: its scripts then remove it."""
    monitoring = settings.monitoring
    grafana = monitoring.grafana if monitoring else None
    return Role(
        "grafana",
        # Last, so that a failure here keeps no other service away.
        after=("monitoring", "backup", "mlflow"),
        values={
            "GRAFANA_ENABLED": grafana is not None,
            # The data that it shows.
            "GRAFANA_PROMETHEUS_PORT": monitoring.port if monitoring else 0,
            "GRAFANA_SOURCE": grafana.source if grafana else "",
            "GRAFANA_SHA256": grafana.sha256 if grafana else "",
            "GRAFANA_PORT": grafana.port if grafana else 0,
            # With Grafana the stack sets the password (components/cluster/secrets.py).
            **({} if grafana else {"GRAFANA_PASSWORD": ""}),
        },
        packages={"services": ("curl",)} if grafana else {},
        texts={
            "GRAFANA_UNIT": template("grafana", UNIT),
            "GRAFANA_CONFIG": template("grafana", "grafana.ini"),
            "GRAFANA_DATA_SOURCE": template("grafana", "data-source.yml"),
            "GRAFANA_PROVIDER": template("grafana", "provider.yml"),
            "GRAFANA_DASHBOARDS": dashboards(),
        },
        ports=(str(grafana.port),) if grafana else (),
        holders={str(grafana.port): Holder(DYNAMIC, head_alone=True)} if grafana else {},
    )


def dashboards() -> str:
    """Return `file JSON` of each dashboard, one a line."""
    files = sorted(DASHBOARDS.glob("*.json"))
    return "\n".join(
        f"{file.name} {json.dumps(json.loads(file.read_text(encoding='utf-8')), separators=(',', ':'))}"
        for file in files
    )
