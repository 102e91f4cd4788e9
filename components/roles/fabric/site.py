"""The fabric of a site as its nodes have proven it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

TAILNET_INTERFACE = "tailscale0"


def interfaces_of(proven: Mapping[str, Mapping[str, Any] | None]) -> dict[str, list[str]]:
    """Return each node's interfaces, the best first; none on the tailnet alone.

    proven   by node of one site what came of proving its fabric (components/roles/fabric/groups.py)
    """
    interfaces: dict[str, list[str]] = {}
    for node, found in proven.items():
        # The first of a site has nobody to prove its own with; those who come later tell of it.
        told = [*((node, name) for name in found["interfaces"]), *found["with"]] if found else []
        for other, name in told:
            known = interfaces.setdefault(other, [])
            known += [name] if name not in known else []
    return interfaces


def shared_interface(nodes: Collection[str], proven: Mapping[str, Mapping[str, Any] | None]) -> str:
    """Return the interfaces that the nodes' sockets should use, with commas between: most often one name on all.

    The tailnet's where one of them has no other.
    """
    found = interfaces_of(proven)
    if not all(found.get(node) for node in nodes):
        return TAILNET_INTERFACE
    return ",".join(sorted({found[node][0] for node in nodes}))
