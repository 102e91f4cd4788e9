"""Grafana on the head node: dashboards of what Prometheus has collected. Where nobody asks for it, it goes."""

from __future__ import annotations

import json

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import DYNAMIC, FOLDER, Holder, Role, template

UNIT = "tailrack-grafana.service"
DASHBOARDS = FOLDER / "grafana" / "dashboards"


def role(settings: ClusterSettings) -> Role:
    """Present where nobody asks for it too: what it has made goes then."""
    monitoring = settings.monitoring
    asked = monitoring.grafana if monitoring else None
    return Role(
        "grafana",
        # Last: what keeps it away keeps no other service away.
        after=("monitoring", "backup", "mlflow"),
        values={
            "GRAFANA_ENABLED": asked is not None,
            # What it shows.
            "GRAFANA_PROMETHEUS_PORT": monitoring.port if monitoring else 0,
            "GRAFANA_SOURCE": asked.source if asked else "",
            "GRAFANA_SHA256": asked.sha256 if asked else "",
            "GRAFANA_PORT": asked.port if asked else 0,
            # With Grafana on, the password is the stack's (components/cluster/passwords.py).
            **({} if asked else {"GRAFANA_PASSWORD": ""}),
        },
        packages={"services": ("curl",)} if asked else {},
        texts={
            "GRAFANA_UNIT": template("grafana", UNIT),
            "GRAFANA_CONFIG": template("grafana", "grafana.ini"),
            "GRAFANA_DATA_SOURCE": template("grafana", "data-source.yml"),
            "GRAFANA_PROVIDER": template("grafana", "provider.yml"),
            "GRAFANA_DASHBOARDS": dashboards(),
        },
        ports=(str(asked.port),) if asked else (),
        holders={str(asked.port): Holder(DYNAMIC, head_alone=True)} if asked else {},
    )


def dashboards() -> str:
    """Return `file JSON` of each dashboard, one a line."""
    files = sorted(DASHBOARDS.glob("*.json"))
    return "\n".join(
        f"{file.name} {json.dumps(json.loads(file.read_text(encoding='utf-8')), separators=(',', ':'))}"
        for file in files
    )
