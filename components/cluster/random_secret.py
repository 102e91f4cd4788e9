"""Random secrets, such as keys and passwords, that the stack makes once and keeps."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_command import local

from components.steps.label import StepLabel


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
