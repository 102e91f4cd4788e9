"""The proven fabric of a site, from the facts of its nodes. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

TAILNET_INTERFACE = "tailscale0"


def interfaces_of(proven: Mapping[str, Mapping[str, Any] | None]) -> dict[str, list[str]]:
    """Return each node's interfaces, the best first; none if it has only the tailnet.

    proven   for each node of one site, the result of proving its fabric (components/roles/fabric/groups.py)
    """
    interfaces: dict[str, list[str]] = {}
    for node, result in proven.items():
        # The first node of a site had no node to prove its interfaces with; later nodes report them in "with".
        pairs = [*((node, name) for name in result["interfaces"]), *result["with"]] if result else []
        for owner, name in pairs:
            names = interfaces.setdefault(owner, [])
            names += [name] if name not in names else []
    return interfaces


def shared_interface(nodes: Collection[str], proven: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Return the names of the interfaces that sockets of the nodes should use, separated by commas.

    The tailnet's interface if one of the nodes has no other.
    """
    interfaces = interfaces_of(proven)
    if not all(interfaces.get(node) for node in nodes):
        return TAILNET_INTERFACE
    return ",".join(sorted({interfaces[node][0] for node in nodes}))
