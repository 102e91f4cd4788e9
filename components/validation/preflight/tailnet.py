"""How a node reaches the next one in the tailnet, from `tailscale status --json`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from components.validation.preflight.findings import Finding, finding

PATH = "tailnet path"


def read_path(text: str, address: str) -> str | None:
    """Return `direct`, `peer-relay`, `relay` or `idle` for the peer with an address; None where it is none of them."""
    try:
        peers = json.loads(text)["Peer"].values()
        for peer in peers:
            if address in peer["TailscaleIPs"]:
                if peer.get("CurAddr"):
                    return "direct"
                if peer.get("PeerRelay"):
                    return "peer-relay"
                return "relay" if peer.get("Active") and peer.get("Relay") else "idle"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return None


def check_path(text: str, name: str, address: str, *, same_site: bool) -> Iterator[Finding]:
    """The path to a neighbour that was spoken with a moment ago."""
    path = read_path(text, address)
    if path is None:
        yield finding(
            "info", PATH, f"tailscaled does not say how it reaches {name}", "see 'tailscale status' on the node"
        )
    elif path in ("relay", "peer-relay"):
        yield finding(
            # Between sites it may be all there is; inside one it never should be.
            "warning" if same_site else "info", PATH, f"{name} is reached by way of a {path}",
            "let UDP 41641 in at one of the two ends, or offer a peer relay; 'tailscale netcheck' says what hinders it",
        )  # fmt: skip
    else:
        yield finding("info", PATH, f"{name} is reached {path if path == 'direct' else 'by a path that is idle now'}")
