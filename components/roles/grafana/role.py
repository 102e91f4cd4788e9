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
        section=asked,
        values={
            "enabled": asked is not None,
            # What it shows.
            "prometheus_port": monitoring.port if monitoring else 0,
            # Of one that is asked for it is the stack's (components/cluster/passwords.py).
            **({} if asked else {"source": "", "sha256": "", "port": 0, "password": ""}),
        },
        packages={"services": ("curl",)} if asked else {},
        texts={
            "unit": template("grafana", UNIT),
            "config": template("grafana", "grafana.ini"),
            "data_source": template("grafana", "data-source.yml"),
            "provider": template("grafana", "provider.yml"),
            "dashboards": dashboards(),
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
