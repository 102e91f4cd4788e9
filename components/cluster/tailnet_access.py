"""Access of machines to the tailnet, and their removal from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pulumi


@dataclass(frozen=True)
class TailnetAccess:
    """The values that a machine needs to join the tailnet.

    control_url  URL of the control server; empty for Tailscale's own
    auth_key     empty if the tailnet needs none
    renewed      whether the key changes from time to time; a machine that has joined does not need it again
    listed       makes the resource whose deletion removes a machine from the tailnet's list, from the machine's name,
                 its tailnet address, a parent and the join; None if the list cannot be changed
    for_pods     access of pods, which have another tag; None if it is the same
    """

    control_url: pulumi.Input[str] = ""
    auth_key: pulumi.Input[str] = ""
    renewed: bool = False
    listed: Callable[[str, pulumi.Output[str], pulumi.Resource, pulumi.Resource], pulumi.Resource] | None = None
    for_pods: TailnetAccess | None = None

    @property
    def renewed_secrets(self) -> tuple[str, ...]:
        """Return the header names of the join's secrets that change from time to time."""
        return ("tailnet_auth_key",) if self.renewed else ()

    def after_join(
        self, name: str, joined: pulumi.Output[Any], parent: pulumi.Resource, join: pulumi.Resource, adopt: bool
    ) -> list[pulumi.Resource]:
        """Return the join and the resources that later steps on the machine depend on.

        joined  the answer of the join
        adopt   whether the machine stays in its tailnet
        """
        return [join, self.listed(name, joined["tailnet_ip"], parent, join)] if self.listed and not adopt else [join]


NO_KEY = TailnetAccess()  # Tailscale's own control server, without a key
