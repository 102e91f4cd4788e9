"""Chains of bastions: the machine of a site is behind its bastion, and that behind another one.

Pulumi's provider (pulumi-command 1.2.1) goes through one bastion, and refuses a key that it does not know. So `make`
listens on this machine while it works (cli/bastions.py) and forwards to the site's bastion through the outer one. For
the provider, that bastion is at `local_address`; both still check the key of each machine. Any account of this machine
can reach the bastion's sshd so, and needs a key there. With `pulumi` alone, no one forwards.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

# Set by `make` while it forwards.
FORWARDED = "TAILRACK_BASTIONS"
LOCAL_PORT = 20022


def local_address(stack: str, site: str) -> str:
    """Return the address for the bastion of a site. It is in the state, so it is the same in every run."""
    first, second, third = hashlib.sha256(f"{stack}/{site}".encode()).digest()[:3]
    return f"127.{first}.{second}.{third % 254 + 1}"


def hops_of(site: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the bastions of a site as written, the first to connect to first."""
    hops: list[Mapping[str, Any]] = []
    hop = site.get("bastion")
    while isinstance(hop, Mapping):
        hops.insert(0, hop)
        hop = hop.get("bastion")
    return hops
