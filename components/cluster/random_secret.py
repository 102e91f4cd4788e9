"""A secret that the stack makes once and keeps: a key, a password."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_command import local

from components.steps.label import StepLabel


def random_secret(
    name: str, words: str, count: int, opts: pulumi.ResourceOptions, triggers: Sequence[str] | None = None
) -> pulumi.Output[str]:
    """Return random bytes as base64 text, secret. Made where the program runs, and kept in the state.

    name, words   the resource's name, and what it makes, for people. Other words would make another secret: they are a
                  part of the command, and the provider runs a command that has changed
    count         bytes
    triggers      texts; another one makes another secret
    """
    made = local.Command(
        name,
        # Nothing of it is in the command; it is born in stdout, which is a secret output and not logged.
        create=StepLabel(name, "", words).on(f"head -c {count} /dev/urandom | base64 -w 0"),
        triggers=triggers,
        logging=local.Logging.NONE,
        add_previous_output_in_env=False,
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(additional_secret_outputs=["stdout", "stderr"])),
    )
    return pulumi.Output.secret(made.stdout)
