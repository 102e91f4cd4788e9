"""The cluster's munge key, a secret in the state. To rotate it, change `generation`."""

from __future__ import annotations

import pulumi

from components.cluster.random_secret import random_secret


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
