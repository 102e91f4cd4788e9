"""What backups of the head node are encrypted with: the config's own password, or one that the stack makes."""

from __future__ import annotations

import pulumi

from components.cluster.random_secret import random_secret
from components.roles.backup.settings import Backup


def backup_password(backup: Backup, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Return the password, secret. 33 random bytes as base64 text where the config has none: made once, kept in the
    state, so that it is not lost with the head node."""
    if backup.password is not None:
        return pulumi.Output.secret(backup.password.get_secret_value())
    return random_secret("backup-password", "password of the backups", 33, opts)
