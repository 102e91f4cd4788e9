"""A relay of the cluster's own: the member that offers itself, and what the tailnet's policy grants for it. Pure."""

from __future__ import annotations

from typing import Any

from components.roles.tailnet.settings import Tailnet

CAPABILITY = "tailscale.com/cap/relay"


def relay_port(tailnet: Tailnet, node: str) -> str:
    """Return the UDP port at which a node is the cluster's relay; empty for every other node."""
    return str(tailnet.relay.port) if tailnet.relay and tailnet.relay.node == node else ""


def relay_grant(tag: str) -> dict[str, Any]:
    """Return the grant by which members with a tag may use each other as relays; only one that offers itself is one."""
    return {"src": [tag], "dst": [tag], "app": {CAPABILITY: []}}
