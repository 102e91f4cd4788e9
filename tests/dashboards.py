"""Grafana's dashboards, and what their panels ask Prometheus for."""

import json
import re
from typing import Any, NamedTuple

from components.roles.monitoring.grafana.role import DASHBOARDS


class Asked(NamedTuple):
    """One expression of a panel, with its variables as they are where everything is chosen."""

    dashboard: str
    panel: str
    expression: str


def dashboards() -> dict[str, dict[str, Any]]:
    """Return each dashboard by the name of its file, without the ending."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(DASHBOARDS.glob("*.json"))}


def every_expression() -> list[Asked]:
    """Return the expressions of all panels."""
    return [
        Asked(name, panel["title"], re.sub(r"\$\w+", ".*", target["expr"]))
        for name, dashboard in dashboards().items()
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]
