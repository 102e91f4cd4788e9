"""How the tailnet joins this machine with the others it speaks with. Pure, from `tailscale status --json`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from components.roles.monitoring.exposition import Metric, Sample


def read_names(text: str) -> dict[str, str]:
    """The cluster's names by address, from lines `address name`."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def tailnet_figures(status: str, names: Mapping[str, str]) -> list[Metric]:
    """Return figures of each member that this machine has exchanged data with lately.

    names   of members by their address: what a machine calls itself in the tailnet is nobody's name

    Raises ValueError for what is not of its form.
    """
    direct: list[Sample] = []
    received: list[Sample] = []
    sent: list[Sample] = []
    try:
        for peer in (json.loads(status).get("Peer") or {}).values():
            # A peer without a word about it is no reason to say nothing of the others.
            if not peer:
                continue
            name = next((names[each] for each in peer.get("TailscaleIPs") or [] if each in names), "")
            if not name:
                continue
            labels = {"peer": name}
            received.append((labels, int(peer.get("RxBytes") or 0)))
            sent.append((labels, int(peer.get("TxBytes") or 0)))
            # Of those alone that it speaks with now: without traffic there is no path.
            if peer.get("Active"):
                direct.append((labels, int(bool(peer.get("CurAddr")))))
    except (AttributeError, TypeError) as error:
        raise ValueError("tailscale does not print its status as expected") from error
    return [
        Metric("tailrack_tailnet_direct", "1 where data to a peer goes directly, 0 where by a relay.", direct),
        Metric("tailrack_tailnet_received_bytes_total", "Bytes from a peer over the tailnet.", received, "counter"),
        Metric("tailrack_tailnet_sent_bytes_total", "Bytes to a peer over the tailnet.", sent, "counter"),
    ]
