"""Metrics of this machine's tailnet connections to members, from `tailscale status --json`. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from components.roles.monitoring.exposition import Metric, Sample


def read_names(text: str) -> dict[str, str]:
    """Return member names by address, from lines `address name`."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def tailnet_figures(status: str, names: Mapping[str, str]) -> list[Metric]:
    """Return the metrics of each member that this machine recently exchanged data with.

    names   of members by address; the name that a machine gives itself in the tailnet is ignored

    Raise ValueError for output in another format.
    """
    direct: list[Sample] = []
    received: list[Sample] = []
    sent: list[Sample] = []
    try:
        for peer in (json.loads(status).get("Peer") or {}).values():
            # Skip a peer without data.
            if not peer:
                continue
            name = next((names[address] for address in peer.get("TailscaleIPs") or [] if address in names), "")
            if not name:
                continue
            labels = {"peer": name}
            received.append((labels, int(peer.get("RxBytes") or 0)))
            sent.append((labels, int(peer.get("TxBytes") or 0)))
            # Without traffic there is no path, direct or relayed.
            if peer.get("Active"):
                direct.append((labels, int(bool(peer.get("CurAddr")))))
    except (AttributeError, TypeError) as error:
        raise ValueError("tailscale does not print its status as expected") from error
    return [
        Metric("tailrack_tailnet_direct", "1 if data to a peer goes directly, 0 if by a relay.", direct),
        Metric("tailrack_tailnet_received_bytes_total", "Bytes from a peer over the tailnet.", received, "counter"),
        Metric("tailrack_tailnet_sent_bytes_total", "Bytes to a peer over the tailnet.", sent, "counter"),
    ]
