"""SSH open to the world: a security group that lets a great part of the internet in at port 22.

The config of an aws site refuses such a network itself. This looks at what would be made, whatever asks for it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from engine.events import Event
from stacks.config.allow import SSH_OPEN

GROUP = "aws:ec2/securityGroup:SecurityGroup"
SSH_PORT = 22
WIDEST = {4: 8, 6: 16}  # prefix length by IP version; a network that is wider is the world


def ssh_open(event: Event) -> Iterator[tuple[str, str]]:
    """Find the networks from which a group that comes or changes lets SSH in."""
    rules = event.after.get("ingress") if event.type == GROUP else None
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, Mapping) and _has_ssh(rule):
            for network in _networks(rule):
                if network.prefixlen < WIDEST[network.version]:
                    yield SSH_OPEN, f"{event.name} lets SSH in from {network}: everybody could try to log in"


def _has_ssh(rule: Mapping[str, Any]) -> bool:
    protocol, first, last = rule.get("protocol"), rule.get("fromPort"), rule.get("toPort")
    if protocol in ("-1", "all"):
        return True
    return protocol in ("tcp", "6") and isinstance(first, int) and isinstance(last, int) and first <= SSH_PORT <= last


def _networks(rule: Mapping[str, Any]) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for key in ("cidrBlocks", "ipv6CidrBlocks"):
        for text in rule.get(key) or ():
            try:
                yield ipaddress.ip_network(text, strict=False)
            except ValueError:  # not known yet: an address of something that is still to be made, which is one address
                continue
