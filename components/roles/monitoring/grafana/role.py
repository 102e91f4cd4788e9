"""Grafana on the head node: dashboards for Prometheus' metrics."""

import json

from components.roles.cluster_settings import ClusterSettings
from components.roles.monitoring.grafana.host import MADE, UNIT
from components.roles.role import DYNAMIC, Holder, Role, folder_of, template

DASHBOARDS = folder_of("grafana") / "dashboards"


def role(settings: ClusterSettings) -> Role | None:
    """Return the role; None without Grafana in the config."""
    monitoring = settings.monitoring
    if not (monitoring and (grafana := monitoring.grafana)):
        return None
    return Role(
        "grafana",
        # Last, so that a failure here keeps no other service away.
        after=("monitoring", "backup", "mlflow"),
        values={
            # The data that it shows. The stack sets the password (components/cluster/secrets.py).
            "prometheus_port": monitoring.port,
            "source": grafana.source,
            "sha256": grafana.sha256,
            "port": grafana.port,
        },
        packages={"services": ("curl",)},
        made={"services": MADE},
        texts={
            "unit": template("grafana", UNIT),
            "config": template("grafana", "grafana.ini"),
            "data_source": template("grafana", "data-source.yml"),
            "provider": template("grafana", "provider.yml"),
            "dashboards": dashboards(),
        },
        ports=(str(grafana.port),),
        holders={str(grafana.port): Holder(DYNAMIC, head_alone=True)},
    )


def dashboards() -> str:
    """Return `file JSON` of each dashboard, one a line."""
    files = sorted(DASHBOARDS.glob("*.json"))
    return "\n".join(
        f"{file.name} {json.dumps(json.loads(file.read_text(encoding='utf-8')), separators=(',', ':'))}"
        for file in files
    )
