"""Rule: a security group must not open port 22 to a large part of the internet.

The config of an aws site already refuses such a network. This rule checks the resources, whatever creates them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from cli.run_events import Event
from stacks.config.allow import SSH_OPEN

GROUP = "aws:ec2/securityGroup:SecurityGroup"
SSH_PORT = 22
WIDEST = {4: 8, 6: 16}  # the shortest allowed prefix by IP version


def ssh_open(event: Event) -> Iterator[tuple[str, str]]:
    """Find wide networks from which a new or changed group allows SSH."""
    rules = event.after.get("ingress") if event.type == GROUP else None
    for rule in rules if isinstance(rules, list) else ():
        if isinstance(rule, Mapping) and _has_ssh(rule):
            for network in _networks(rule):
                if network.prefixlen < WIDEST[network.version]:
                    yield SSH_OPEN, f"{event.name} allows SSH from {network}: anyone there could try to log in"


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
            except ValueError:  # unknown until a resource exists; it is then a single address
                continue
