"""Secrets that the stack makes once and keeps: the munge key, and passwords that people need."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_command import local

from components.roles.cluster_settings import ClusterSettings
from components.roles.jobs.mlflow.role import PASSWORD_BYTES
from components.roles.storage.backup.settings import Backup
from components.steps.label import StepLabel

# Header names of the passwords, by the name that `passwords` returns.
HEADER_NAMES = {"backup": "backup_password", "grafana": "grafana_password", "mlflow_admin": "mlflow_admin_password"}


def random_secret(
    name: str, text: str, count: int, opts: pulumi.ResourceOptions, triggers: Sequence[str] | None = None
) -> pulumi.Output[str]:
    """Return random bytes as secret base64 text, made on the machine that runs the program and kept in the state.

    name       the resource's name
    text       the name of the secret for people; part of the command, so another text would make another secret
    count      the number of bytes
    triggers   texts; a change makes a new secret
    """
    command = local.Command(
        name,
        # The secret exists only in stdout, which is a secret output and not logged.
        create=StepLabel(name, "", text).on(f"head -c {count} /dev/urandom | base64 -w 0"),
        triggers=triggers,
        logging=local.Logging.NONE,
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(additional_secret_outputs=["stdout", "stderr"])),
    )
    return pulumi.Output.secret(command.stdout)


class MungeKey(pulumi.ComponentResource):
    """96 random bytes as base64 text (128 characters; munge takes 32 to 1,024 bytes).

    generation   any text; a new value makes a new key, which every node gets in the same `up`
    key          Output[str], secret
    """

    def __init__(self, generation: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tailrack:cluster:MungeKey", "munge", None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.key: pulumi.Output[str] = random_secret("munge-key", "munge key", 96, child, triggers=[generation])
        self.register_outputs({})


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
