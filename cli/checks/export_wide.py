"""Rule: an NFS export to more than one address lets other machines than the node mount the share."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from cli.run_events import Event
from components.roles.nfs_exports.foreign import clients
from components.steps.command_line import read_request
from stacks.config.allow import EXPORT_WIDE

EXPORT = "NODE_EXPORT"  # the header value with the line


def export_wide(event: Event) -> Iterator[tuple[str, str]]:
    """Find clients of a node's export that are not a single address."""
    line = (read_request(event.after.get("stdin")) or {}).get(EXPORT, "")
    for client in clients(line):
        if not _one_address(client):
            yield EXPORT_WIDE, f"{event.name} exports the share to {client}, which is more than one machine"


def _one_address(client: str) -> bool:
    try:
        return ipaddress.ip_network(client).num_addresses == 1
    except ValueError:  # a name, a pattern, or a network with host bits
        return False
