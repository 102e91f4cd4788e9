"""The proven fabric of a site, and readers of the facts about its nodes' networks. Pure functions."""

import ipaddress
from collections.abc import Collection, Mapping
from typing import Any

from components.roles.facts import Reader, list_of, matching, object_of, text, truth, whole
from components.roles.network.fabric.networks import LINKS, MOST_DEVICES
from components.settings.network_names import DEVICE, INTERFACE, TAILNET

TAILNET_INTERFACE = "tailscale0"
_node = matching(r"[a-z0-9][a-z0-9-]{0,62}")
_interface = matching(INTERFACE)
# The pods that a pod has to reach in their network.
_ipv4 = matching(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")
neighbours = list_of(object_of({"name": _node, "address": _ipv4, "tailnet": _ipv4}))


def interfaces_of(proven: Mapping[str, Mapping[str, Any] | None]) -> dict[str, list[str]]:
    """Return each node's interfaces, the best first; none if it has only the tailnet.

    proven   for each node of one site, the result of proving its fabric (components/roles/network/fabric/groups.py)
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


def _address(value: object) -> str:
    """Read an IPv4 address with its prefix length that is not the tailnet's."""
    if not isinstance(value, str) or "/" not in value:
        raise ValueError
    address = ipaddress.IPv4Interface(value)
    if str(address) != value or address.ip in TAILNET or address.ip.is_loopback:
        raise ValueError
    return value


_INTERFACE: Mapping[str, Reader] = {
    "name": _interface,
    "address": _address,
    "default_route": truth,
    "speed": whole(0, 10**7),
    "rdma": truth,
}


_RDMA: Mapping[str, Reader] = {
    "device": matching(DEVICE),
    "port": whole(1, 255),
    "interface": matching(f"({INTERFACE})?"),
    "link": matching("|".join(LINKS)),
    "rail": whole(-1, 255),  # the number of a GPU, or -1 for none
}


# The candidates for its site's fabric: interfaces with addresses (networks.py), RDMA ports (networks.py).
networks = object_of({"interfaces": list_of(object_of(_INTERFACE)), "rdma": list_of(object_of(_RDMA), MOST_DEVICES)})


def _node_and_interface(value: object) -> list[str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError
    return [_node(value[0]), _interface(value[1])]


_PROVEN: Mapping[str, Reader] = {
    "interfaces": list_of(_interface),
    "rdma": list_of(matching(r"[A-Za-z0-9_.-]{1,64}:[0-9]{1,3}"), MOST_DEVICES),
    "with": list_of(_node_and_interface),
    "note": text(4000),
    "error": text(4000),
}


def proven(value: object) -> dict[str, Any] | None:
    """Read the result of proving a node's fabric (groups.py); None on the tailnet."""
    return None if value is None else object_of(_PROVEN)(value)
