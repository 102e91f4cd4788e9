"""The cluster's relay: the member that offers it, and the grant that the tailnet's policy needs."""

from __future__ import annotations

from typing import Any

from components.roles.tailnet.settings import Tailnet

CAPABILITY = "tailscale.com/cap/relay"


def relay_port(tailnet: Tailnet, node: str) -> str:
    """Return the relay's UDP port for the relay node; empty for every other node."""
    return str(tailnet.relay.port) if tailnet.relay and tailnet.relay.node == node else ""


def relay_grant(tag: str) -> dict[str, Any]:
    """Return the grant that lets members with a tag use each other as relays, if they offer it."""
    return {"src": [tag], "dst": [tag], "app": {CAPABILITY: []}}
