"""The cluster's munge key: made once, kept as a secret in the state, rotated by changing `generation`."""

from __future__ import annotations

import pulumi

from components.cluster.random_secret import random_secret


class MungeKey(pulumi.ComponentResource):
    """96 random bytes as base64 text (128 characters; munge takes 32 to 1,024 bytes).

    generation   any text; another one makes another key, which every node then gets in the same `up`
    key          Output[str], secret
    """

    def __init__(self, generation: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tailrack:cluster:MungeKey", "munge", None, opts)
        own = pulumi.ResourceOptions(parent=self)
        self.key: pulumi.Output[str] = random_secret("munge-key", "munge key", 96, own, triggers=[generation])
        self.register_outputs({})
