"""What Alertmanager is told: who gets alerts, and how they read. Pure.

What is secret in it lies in files of its own, which systemd shows to Alertmanager alone (its unit's LoadCredential).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.roles.monitoring.settings_receivers import Receiver

UNIT = "tailrack-alertmanager.service"
# Where its process finds them.
CREDENTIALS = f"/run/credentials/{UNIT}"

_TITLE = "[{{ .Status }}] {{ .CommonLabels.cluster }}: {{ .CommonLabels.alertname }}"
_TEXT = (
    '{{ range .Alerts }}{{ if eq .Status "resolved" }}Over: {{ end }}{{ .Annotations.summary }}\n'
    '{{ if eq .Status "firing" }}{{ .Annotations.remedy }}\n{{ end }}\n{{ end }}'
)


def alertmanager_config(receivers: Sequence[Receiver]) -> str:
    """Return its configuration in JSON, which is YAML; empty where nobody is told."""
    if not receivers:
        return ""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for place, receiver in enumerate(receivers):
        by_kind.setdefault(_KINDS[receiver.kind], []).append(
            {"send_resolved": True, **_told(receiver, f"{CREDENTIALS}/{_name(place)}")}
        )
    route = {"group_by": ["alertname"], "group_wait": "30s", "group_interval": "5m", "repeat_interval": "12h"}
    config = {"route": {"receiver": "all", **route}, "receivers": [{"name": "all", **by_kind}]}
    return json.dumps(config, indent=2, sort_keys=True)


def receiver_secrets(receivers: Sequence[Receiver]) -> str:
    """Return what is secret in them, `file text` a line."""
    return "\n".join(f"{_name(place)} {text}" for place, text in _secrets(receivers))


def _secrets(receivers: Sequence[Receiver]) -> Iterator[tuple[int, str]]:
    for place, receiver in enumerate(receivers):
        if secret := receiver.url or receiver.password:
            yield place, secret.get_secret_value()


_KINDS = {"webhook": "webhook_configs", "slack": "slack_configs", "mail": "email_configs"}


def _name(place: int) -> str:
    return f"receiver-{place}"


def _told(receiver: Receiver, file: str) -> Mapping[str, Any]:
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
