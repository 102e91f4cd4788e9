"""Build Alertmanager's configuration: the receivers of alerts, and the text of messages. Pure.

Secrets are in separate files, which systemd passes only to Alertmanager (LoadCredential in its unit).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.roles.monitoring.settings_receivers import Receiver

UNIT = "tailrack-alertmanager.service"
# The folder in which Alertmanager finds the secrets.
CREDENTIALS = f"/run/credentials/{UNIT}"

# Longer than a month.
BUDGET_REPEAT = "1080h"

_TITLE = "[{{ .Status }}] {{ .CommonLabels.cluster }}: {{ .CommonLabels.alertname }}"
_TEXT = (
    '{{ range .Alerts }}{{ if eq .Status "resolved" }}Resolved: {{ end }}{{ .Annotations.summary }}\n'
    '{{ if eq .Status "firing" }}{{ .Annotations.remedy }}\n{{ end }}\n{{ end }}'
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
    return "\n".join(f"{_file_name(index)} {text}" for index, text in _secrets(receivers))


def _secrets(receivers: Sequence[Receiver]) -> Iterator[tuple[int, str]]:
    for index, receiver in enumerate(receivers):
        if secret := receiver.url or receiver.password:
            yield index, secret.get_secret_value()


_KINDS = {"webhook": "webhook_configs", "slack": "slack_configs", "mail": "email_configs"}


def _file_name(index: int) -> str:
    return f"receiver-{index}"


def _receiver_config(receiver: Receiver, file: str) -> Mapping[str, Any]:
    if receiver.kind == "webhook":
        return {"url_file": file}
    if receiver.kind == "slack":
        return {"api_url_file": file, "title": _TITLE, "fallback": _TITLE, "text": _TEXT}
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
