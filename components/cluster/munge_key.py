"""The cluster's munge key: made once, kept as a secret in the state, rotated by changing `generation`."""

from __future__ import annotations

import pulumi
from pulumi_command import local

from components.steps.label import StepLabel

NAME = "munge-key"
# Nothing of the key is in the command; it is born in stdout, which is a secret output and not logged.
_MAKE = "head -c 96 /dev/urandom | base64 -w 0"


class MungeKey(pulumi.ComponentResource):
    """96 random bytes as base64 text (128 characters; munge takes 32 to 1,024 bytes).

    generation   any text; another one makes another key, which every node then gets in the same `up`
    key          Output[str], secret
    """

    def __init__(self, generation: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tailrack:cluster:MungeKey", "munge", None, opts)
        made = local.Command(
            NAME,
            create=StepLabel(NAME, "", "munge key").on(_MAKE),
            triggers=[generation],
            logging=local.Logging.NONE,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(parent=self, additional_secret_outputs=["stdout", "stderr"]),
        )
        self.key: pulumi.Output[str] = pulumi.Output.secret(made.stdout)
        self.register_outputs({})
