"""A node's paths in the tailnet and their traffic, from `tailscale status --json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.node.json_part import first_object
from components.validation.preflight.findings import Finding, finding

PATH, TRAFFIC = "tailnet path", "tailnet traffic"
MOST_PEERS = 8  # per node: with all peers, a job of a thousand nodes would report a million


def read_path(text: str, address: str) -> str | None:
    """Return the path to the peer with this address (path_of); None without such a peer."""
    return next((path_of(peer) for peer in read_peers(text) if address in peer["TailscaleIPs"]), None)


def read_peers(text: str) -> list[Mapping[str, Any]]:
    """Return the peers of a status, each with a list `TailscaleIPs`. A malformed peer does not affect others."""
    status, _ = first_object(text, lambda value: "Peer" in value)
    peers = status.get("Peer")
    return [
        {**peer, "TailscaleIPs": peer["TailscaleIPs"] if isinstance(peer.get("TailscaleIPs"), list) else []}
        for peer in (peers.values() if isinstance(peers, Mapping) else ())
        if isinstance(peer, Mapping)
    ]


def path_of(peer: Mapping[str, Any]) -> str:
    """Return the path to a peer: `direct`, `peer-relay`, `relay` or `idle`."""
    if peer.get("CurAddr"):
        return "direct"
    if peer.get("PeerRelay"):
        return "peer-relay"
    return "relay" if peer.get("Active") and peer.get("Relay") else "idle"


def read_traffic(text: str) -> list[tuple[str, str, int, int]]:
    """Return (name, path, bytes sent, bytes received) of each peer since tailscaled's start, most traffic first."""
    traffic = list[tuple[str, str, int, int]]()
    for peer in read_peers(text):
        sent, received = peer.get("TxBytes"), peer.get("RxBytes")
        if isinstance(sent, int) and isinstance(received, int) and sent >= 0 <= received and sent + received:
            traffic.append((str(peer.get("DNSName") or "?").split(".")[0], path_of(peer), sent, received))
    return sorted(traffic, key=lambda entry: (-entry[2] - entry[3], entry[0]))


def check_traffic(text: str) -> Iterator[Finding]:
    """Report the peers with the most traffic."""
    for name, path, sent, received in read_traffic(text)[:MOST_PEERS]:
        yield finding("info", TRAFFIC, f"{name} by {path}: {sent} B sent, {received} B received")


def check_path(text: str, name: str, address: str, *, same_site: bool) -> Iterator[Finding]:
    """Check the path to a neighbour after an exchange with it."""
    path = read_path(text, address)
    if path is None:
        seen = f"tailscaled does not report how it reaches {name}"
        yield finding("info", PATH, seen, "see 'tailscale status' on the node")
    elif path in ("relay", "peer-relay"):
        yield finding(
            # Between sites a relay may be the only path; inside a site it never should be.
            "warning" if same_site else "info", PATH, f"{name} is reached through a {path}",
            "allow incoming UDP 41641 at one end, or provide a peer relay; 'tailscale netcheck' shows the obstacle",
        )  # fmt: skip
    else:
        seen = f"{name} is reached {'directly' if path == 'direct' else 'over a path that is idle now'}"
        yield finding("info", PATH, seen)
