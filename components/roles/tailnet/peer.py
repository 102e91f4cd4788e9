"""A node's state in the tailnet as the head node sees it."""

from __future__ import annotations

import json

from components.node.run import attempt

# Seconds from a node's answer until it is gone: its logout waits for the control server.
GONE_LIMIT = 90


def is_logged_out(address: str) -> bool:
    """Return whether the node with an address is not in the tailnet's list, or in it without a login.

    Machines that are not ephemeral stay listed.
    """
    ended = attempt("tailscale", "status", "--json")
    return ended.ok and not any(
        address in (peer.get("TailscaleIPs") or ()) and peer.get("Online") and not peer.get("Expired")
        for peer in (json.loads(ended.output).get("Peer") or {}).values()
    )
