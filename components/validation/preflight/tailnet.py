"""How a node reaches others in the tailnet, and what went that way, from `tailscale status --json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from components.validation.json_part import first_object
from components.validation.preflight.findings import Finding, finding

PATH, TRAFFIC = "tailnet path", "tailnet traffic"
MOST_PEERS = 8  # of a node whose traffic is told; a job of a thousand nodes would say a million otherwise


def read_path(text: str, address: str) -> str | None:
    """Return `direct`, `peer-relay`, `relay` or `idle` for the peer with an address; None where it is none of them."""
    mine = (peer for peer in read_peers(text) if address in peer["TailscaleIPs"])
    return next((_path(peer) for peer in mine), None)


def read_peers(text: str) -> list[Mapping[str, Any]]:
    """Return the peers of a status; `TailscaleIPs` of each is a list. One of another form takes no other with it."""
    whole, _ = first_object(text, lambda each: "Peer" in each)
    peers = whole.get("Peer")
    return [
        {**peer, "TailscaleIPs": peer["TailscaleIPs"] if isinstance(peer.get("TailscaleIPs"), list) else []}
        for peer in (peers.values() if isinstance(peers, Mapping) else ())
        if isinstance(peer, Mapping)
    ]


def _path(peer: Mapping[str, Any]) -> str:
    if peer.get("CurAddr"):
        return "direct"
    if peer.get("PeerRelay"):
        return "peer-relay"
    return "relay" if peer.get("Active") and peer.get("Relay") else "idle"


def read_traffic(text: str) -> list[tuple[str, str, int, int]]:
    """Return peers by name with their path, bytes sent and bytes received, most first; none where it is no status.

    The bytes are those since this node's tailscaled began.
    """
    found = list[tuple[str, str, int, int]]()
    for peer in read_peers(text):
        sent, received = peer.get("TxBytes"), peer.get("RxBytes")
        if isinstance(sent, int) and isinstance(received, int) and sent >= 0 <= received and sent + received:
            found.append((str(peer.get("DNSName") or "?").split(".")[0], _path(peer), sent, received))
    return sorted(found, key=lambda each: (-each[2] - each[3], each[0]))


def check_traffic(text: str) -> Iterator[Finding]:
    """What went to and came from the peers that this node exchanged most with."""
    for name, path, sent, received in read_traffic(text)[:MOST_PEERS]:
        yield finding("info", TRAFFIC, f"{name} by {path}: {sent} B sent, {received} B received")


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
