"""What backups of the head node are encrypted with: the config's own password, or one that the stack makes."""

from __future__ import annotations

import pulumi
from pulumi_command import local

from components.roles.backup.settings import Backup
from components.steps.label import StepLabel

NAME = "backup-password"
# Nothing of it is in the command; it is born in stdout, which is a secret output and not logged.
_MAKE = "head -c 33 /dev/urandom | base64 -w 0"


def backup_password(backup: Backup, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Return the password, secret. 33 random bytes as base64 text where the config has none: made once, kept in the
    state, so that it is not lost with the head node."""
    if backup.password is not None:
        return pulumi.Output.secret(backup.password.get_secret_value())
    made = local.Command(
        NAME,
        create=StepLabel(NAME, "", "password of the backups").on(_MAKE),
        logging=local.Logging.NONE,
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(additional_secret_outputs=["stdout", "stderr"])),
    )
    return pulumi.Output.secret(made.stdout)
