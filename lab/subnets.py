"""Which IPv4 subnet a site's network gets, and which addresses in it."""

import hashlib
import ipaddress
from collections.abc import Collection, Iterator
from pathlib import Path

RANGE = ipaddress.IPv4Network("10.64.0.0/10")
"""Where subnets are picked from."""

CONTROL_OFFSET = 2
"""The control server's address in every subnet, counted from its start (1 is the bridge itself)."""

FIRST_NODE_OFFSET = 10

PRIVATE_RANGES = tuple(map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))


def is_private(network: ipaddress.IPv4Network) -> bool:
    """Whether a site's network may be this one: not one of the internet's, nor the tailnet's."""
    return any(network.subnet_of(private) for private in PRIVATE_RANGES)


def room(network: ipaddress.IPv4Network) -> int:
    """Return how many nodes a site's network has addresses for."""
    return max(network.num_addresses - 1 - FIRST_NODE_OFFSET, 0)


def candidates(lab: str, site: str, count: int = 64) -> Iterator[ipaddress.IPv4Network]:
    """Yield `count` /24 subnets of RANGE for a site: always the same, starting at a hash of lab and site."""
    subnets = 1 << (24 - RANGE.prefixlen)
    first = int.from_bytes(hashlib.sha256(f"{lab}/{site}".encode()).digest()[:8], "big")
    for step in range(count):
        index = (first + step) % subnets
        yield ipaddress.IPv4Network((int(RANGE.network_address) + (index << 8), 24))


def host_routes(table: str | None = None) -> list[ipaddress.IPv4Network]:
    """Return the networks this machine has routes to, without the default route; `table` is /proc/net/route's text."""
    text = Path("/proc/net/route").read_text() if table is None else table
    routes = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        address, mask = (int.from_bytes(bytes.fromhex(fields[column])[::-1], "big") for column in (1, 7))
        if mask:
            routes.append(ipaddress.IPv4Network((address, mask.bit_count())))
    return routes


def control_address(subnet: str) -> str:
    """Return the control server's address in `subnet`."""
    return str(ipaddress.IPv4Network(subnet)[CONTROL_OFFSET])


def free_address(subnet: str, taken: Collection[str]) -> str | None:
    """Return the lowest address for a node in `subnet` that is not in `taken`, or None when it is full."""
    network = ipaddress.IPv4Network(subnet)
    for offset in range(FIRST_NODE_OFFSET, network.num_addresses - 1):
        address = str(network[offset])
        if address not in taken:
            return address
    return None
