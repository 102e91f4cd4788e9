"""Name the firewalls on this machine that may block other members. Only for messages: the rules are not evaluated."""

from __future__ import annotations

import re

from components.node import systemd
from components.node.run import attempt, exists
from components.roles.tailnet.tailscale import Tailscale


def own_firewalls(now: Tailscale) -> str:
    """Return their names with `+` between."""
    found = {
        "firewalld": systemd.is_active("firewalld"),
        "ufw": exists("ufw") and _ufw_is_active(),
        "nftables": exists("nft") and _drops_by_default(),
        "shields-up": now.shields_up,
    }
    return "+".join(name for name, there in found.items() if there)


def _ufw_is_active() -> bool:
    return bool(re.search("^Status: active", attempt("ufw", "status", quiet=True).output, re.MULTILINE))


def _drops_by_default() -> bool:
    """Return whether an nftables input chain drops by default. ufw's and iptables' chains are such chains too."""
    rules = attempt("nft", "list", "ruleset", quiet=True).output
    return any("hook input " in line and "policy drop" in line for line in rules.splitlines())
