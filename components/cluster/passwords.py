"""Passwords that a person needs one day: the config's own, or those that the stack makes once and keeps."""

from __future__ import annotations

import pulumi

from components.cluster.random_secret import random_secret
from components.roles.backup.settings import Backup
from components.roles.cluster_settings import ClusterSettings
from components.roles.mlflow.role import PASSWORD_BYTES

# The name under which scripts read a password, by the role that it is for.
HEADER_NAMES = {"backup": "BACKUP_PASSWORD", "grafana": "GRAFANA_PASSWORD", "mlflow_admin": "MLFLOW_ADMIN_PASSWORD"}


def passwords(settings: ClusterSettings, opts: pulumi.ResourceOptions) -> dict[str, pulumi.Output[str]]:
    """Return them, secret, by the role that they are for: of what the config asks for alone."""
    found = {}
    if settings.backup is not None:
        found["backup"] = _backup_password(settings.backup, opts)
    if settings.monitoring is not None and settings.monitoring.grafana is not None:
        found["grafana"] = random_secret("grafana-password", "password of Grafana's admin", 24, opts)
    if settings.mlflow is not None:
        found["mlflow_admin"] = random_secret(
            "mlflow-password", "password of MLflow's administrator", PASSWORD_BYTES, opts
        )
    return found


def _backup_password(backup: Backup, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """33 random bytes as base64 text where the config has none: without it a backup cannot be read, and the head node,
    which has it too, may be lost."""
    if backup.password is not None:
        return pulumi.Output.secret(backup.password.get_secret_value())
    return random_secret("backup-password", "password of the backups", 33, opts)
