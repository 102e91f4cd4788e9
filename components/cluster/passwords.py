"""Passwords that people need: from the config, or made once and kept by the stack."""

from __future__ import annotations

import pulumi

from components.cluster.random_secret import random_secret
from components.roles.backup.settings import Backup
from components.roles.cluster_settings import ClusterSettings
from components.roles.mlflow.role import PASSWORD_BYTES

# Header names of the passwords, by the name that `passwords` returns.
HEADER_NAMES = {"backup": "BACKUP_PASSWORD", "grafana": "GRAFANA_PASSWORD", "mlflow_admin": "MLFLOW_ADMIN_PASSWORD"}


def passwords(settings: ClusterSettings, opts: pulumi.ResourceOptions) -> dict[str, pulumi.Output[str]]:
    """Return the passwords of services that the config uses, secret, by the service's name."""
    secrets = {}
    if settings.backup is not None:
        secrets["backup"] = _backup_password(settings.backup, opts)
    if settings.monitoring is not None and settings.monitoring.grafana is not None:
        secrets["grafana"] = random_secret("grafana-password", "password of Grafana's admin", 24, opts)
    if settings.mlflow is not None:
        secrets["mlflow_admin"] = random_secret(
            "mlflow-password", "password of MLflow's administrator", PASSWORD_BYTES, opts
        )
    return secrets


def _backup_password(backup: Backup, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Return the config's password, or 33 random bytes as base64 text.

    The stack keeps it, because the head node may be lost, and no one can read a backup without its password.
    """
    if backup.password is not None:
        return pulumi.Output.secret(backup.password.get_secret_value())
    return random_secret("backup-password", "password of the backups", 33, opts)
