"""How machines get into the tailnet, and what is left of them there when they have gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pulumi


@dataclass(frozen=True)
class TailnetAccess:
    """What the join of a machine needs.

    control_url  of the tailnet; empty for Tailscale's own
    auth_key     empty where none is asked for
    renewed      whether the key is another one from time to time; a machine that has joined needs it no more
    listed       makes, of a machine's name, its tailnet address, a parent and the join itself, the resource with which
                 the machine goes from the tailnet's list; None where nobody could take it from there
    """

    control_url: pulumi.Input[str] = ""
    auth_key: pulumi.Input[str] = ""
    renewed: bool = False
    listed: Callable[[str, pulumi.Output[str], pulumi.Resource, pulumi.Resource], pulumi.Resource] | None = None

    @property
    def renewed_secrets(self) -> tuple[str, ...]:
        """Secrets of the join, by header name, that are another one from time to time."""
        return ("TAILNET_AUTH_KEY",) if self.renewed else ()

    def after_join(
        self, name: str, joined: pulumi.Output[Any], parent: pulumi.Resource, join: pulumi.Resource, adopt: bool
    ) -> list[pulumi.Resource]:
        """Return what has to outlive all that is done with a machine after its join; the join itself among it.

        joined  what the machine said of it
        adopt   the machine stays in its tailnet
        """
        return [join, self.listed(name, joined["tailnet_ip"], parent, join)] if self.listed and not adopt else [join]


NO_KEY = TailnetAccess()  # into Tailscale's own tailnet, or none
