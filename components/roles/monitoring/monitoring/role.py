"""Monitoring on the head node: Prometheus, its targets on all members, alert rules, and Alertmanager's receivers.

Secrets of receivers are in separate files, which systemd passes only to Alertmanager (LoadCredential in its unit).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from components.roles.cluster_settings import ClusterSettings
from components.roles.monitoring.monitoring.accepted_series import NODE_NAME, PATH, USER_NAME, metric_relabel_configs
from components.roles.monitoring.monitoring.alerting import UNIT as ALERTMANAGER_UNIT
from components.roles.monitoring.monitoring.figures import COLLECTORS
from components.roles.monitoring.monitoring.host import EXPORTER, EXPORTER_UNIT, MADE, figures_task
from components.roles.monitoring.monitoring.prometheus import UNIT as PROMETHEUS_UNIT
from components.roles.monitoring.monitoring.settings import Monitoring, Receiver, Webhook
from components.roles.program import launcher
from components.roles.role import DYNAMIC, Holder, Role, template
from components.settings.types import CROSS_SITE, NODE

ALERTMANAGER_PACKAGES = ("prometheus-alertmanager",)
JOB = "node"
# The account and packages of node exporter on every machine.
EXPORTER_ACCOUNT = "prometheus"
EXPORTER_PACKAGES = ("prometheus-node-exporter", "curl", "python3")
# The folder in which Alertmanager finds the secrets.
CREDENTIALS = f"/run/credentials/{ALERTMANAGER_UNIT}"
# Longer than a month.
BUDGET_REPEAT = "1080h"
_KINDS = {"webhook": "webhook_configs", "slack": "slack_configs", "mail": "email_configs"}
_TITLE = "[{{ .Status }}] {{ .CommonLabels.cluster }}: {{ .CommonLabels.alertname }}"
_TEXT = (
    '{{ range .Alerts }}{{ if eq .Status "resolved" }}Resolved: {{ end }}{{ .Annotations.summary }}\n'
    '{{ if eq .Status "firing" }}{{ .Annotations.remedy }}\n{{ end }}\n{{ end }}'
)


def role(settings: ClusterSettings) -> Role:
    """Return the role. Without monitoring in the config it removes Prometheus, but keeps the members' targets."""
    config = settings.monitoring
    monitoring = config or Monitoring()
    receivers = config.receivers if config else ()
    hidden = {"receivers": receiver_secrets(receivers)}
    of_head = [str(config.port), *([str(config.alertmanager_port)] if receivers else [])] if config else []
    holders = {port: Holder(DYNAMIC, head_alone=True) for port in of_head}
    if config:
        holders[str(config.exporter_port)] = Holder(EXPORTER_ACCOUNT, private=True)
    packages = ("prometheus", "perl-base", *EXPORTER_PACKAGES, *(ALERTMANAGER_PACKAGES if receivers else ()))
    return Role(
        "monitoring",
        after=("tailnet", "firewall", "tailrack", "slurm"),
        values={
            "enabled": config is not None,
            "port": monitoring.port,
            "exporter_port": monitoring.exporter_port,
            "alertmanager_port": monitoring.alertmanager_port,
            "retention_days": monitoring.retention_days,
            "retention_gb": monitoring.retention_gb,
            "told": collector_settings(settings) if config else "",
            "cluster": settings.cluster.name,
            "alertmanager": alertmanager_config(receivers, budget=settings.budget is not None),
            **({} if receivers else hidden),
        },
        secrets=hidden if receivers else {},
        packages={"services": packages} if config else {},
        only_where={"node": () if config else EXPORTER},
        made={"services": MADE},
        texts={
            "config": template("monitoring", "prometheus.yml"),
            "rules": rules(),
            "accepted": metric_relabel_configs(),
            "unit": template("monitoring", PROMETHEUS_UNIT),
            "figures": launcher("figures"),
            "alertmanager_unit": alertmanager_unit(budget=settings.budget is not None),
            "exporter_unit": template("monitoring", EXPORTER_UNIT),
        },
        ports=(*of_head, str(config.exporter_port)) if config else (),
        holders=holders,
        # The head node scrapes every member.
        serves=(str(config.exporter_port),) if config else (),
        scrape={JOB: config.exporter_port} if config else {},
        tasks={"services": (figures_task("slurm", "head", "measured", "tailnet", "gpus", "certificate"),)}
        if config
        else {},
    )


def alertmanager_unit(*, budget: bool) -> str:
    """Return Alertmanager's unit. With a budget, it remembers sent messages for as long as it must not repeat them."""
    text = template("monitoring", ALERTMANAGER_UNIT)
    return text.replace(" --log.level", f" --data.retention={BUDGET_REPEAT} --log.level") if budget else text


def rules() -> str:
    """Return the alert rules, still with the placeholder for the head node's name."""
    text = template("monitoring", "alerts.yml")
    patterns = (
        ("NODE", NODE_NAME),
        ("USER", USER_NAME),
        ("MOUNTPOINT", f"{PATH}|odd-name-[0-9]+"),
        ("COLLECTORS", "|".join(COLLECTORS)),
    )
    for placeholder, pattern in patterns:
        text = text.replace(f"@{placeholder}@", pattern)
    return text


def collector_settings(settings: ClusterSettings) -> str:
    """Return the settings of the head node's collectors (figures.py) as JSON."""
    validation = settings.validation
    cpu = {"min_bytes", "max_bytes", "factor", "iterations", "warmup", "gate_bytes"}
    return json.dumps(
        {
            "share": settings.storage.path,
            "cpu": validation.model_dump(include=cpu),
            "ranks_per_node": validation.ranks_per_node,
            "floors": dict(validation.floors_gb_per_s),
            "cross_site": CROSS_SITE,
            "node": NODE,
            "training_floor": validation.training.floor_images_per_second if validation.training else None,
            "head": settings.head.name,
            "idle_hours": config.idle_hours if (config := settings.monitoring) else 0,
        },
        sort_keys=True,
    )


def alertmanager_config(receivers: Sequence[Receiver], *, budget: bool = False) -> str:
    """Return the configuration as JSON, which is also YAML; empty without receivers."""
    if not receivers:
        return ""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for index, receiver in enumerate(receivers):
        by_kind.setdefault(_KINDS[receiver.kind], []).append(
            {"send_resolved": True, **_receiver_config(receiver, f"{CREDENTIALS}/{_file_name(index)}")}
        )
    route = {"group_by": ["alertname"], "group_wait": "30s", "group_interval": "5m", "repeat_interval": "12h"}
    # Alerts about the budget last until the month ends.
    once = {"matchers": ['alertname=~"BudgetNearlySpent|BudgetSpent"'], "repeat_interval": BUDGET_REPEAT}
    more = {"routes": [once]} if budget else {}
    config = {"route": {"receiver": "all", **route, **more}, "receivers": [{"name": "all", **by_kind}]}
    return json.dumps(config, indent=2, sort_keys=True)


def receiver_secrets(receivers: Sequence[Receiver]) -> str:
    """Return the secrets of receivers as lines `file text`."""
    secrets = [receiver.url if isinstance(receiver, Webhook) else receiver.password for receiver in receivers]
    named = [(_file_name(index), secret.get_secret_value()) for index, secret in enumerate(secrets) if secret]
    return "\n".join(f"{name} {text}" for name, text in named)


def _file_name(index: int) -> str:
    return f"receiver-{index}"


def _receiver_config(receiver: Receiver, file: str) -> Mapping[str, Any]:
    if isinstance(receiver, Webhook):
        slack = {"api_url_file": file, "title": _TITLE, "fallback": _TITLE, "text": _TEXT}
        return slack if receiver.kind == "slack" else {"url_file": file}
    account = {"auth_username": receiver.user, "auth_password_file": file} if receiver.user else {}
    return {
        "to": receiver.to,
        "from": receiver.sender,
        "smarthost": receiver.smarthost,
        "require_tls": receiver.encrypted,
        "headers": {"Subject": _TITLE},
        "text": _TEXT,
        "html": "",
        **account,
    }
