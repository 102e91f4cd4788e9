"""Differences between machines of a profile: names, login and files."""

import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

OfDistribution = Literal["bookworm", "forky", "ubuntu-24.04"]
"""A plain machine of another distribution than the lab's own (lab/distributions.py)."""
HeadProfile = Literal["cloud", "server", "desktop", OfDistribution]
"""A machine that can be a head node."""
Profile = Literal[HeadProfile, "pod"]
Like = Literal["", Profile]
"""A machine's profile; empty for the lab's plain machine."""

_OWN_LOGINS: dict[Like, str] = {"cloud": "ubuntu", "desktop": "maria", "pod": "root"}

PROFILES: tuple[Profile, ...] = get_args(Profile)
PLAIN: tuple[Like, ...] = ("", *get_args(OfDistribution))
FOLDER = Path(__file__).parent

CLASHING_UID, CLASHING_USER = 6001, "carol"
"""A user that a server has already, with the uid that a cluster's config gives to somebody else."""

BUSY = "/etc/lab-busy"
"""With this file a cloud machine's first minute is taken: cloud-init and the day's updates hold apt's locks."""


@dataclass(frozen=True)
class Interface:
    """A network interface as Docker sets it up: address with prefix length (10.1.2.3/24), gateway if it has one."""

    name: str
    address: str
    gateway: str | None = None


def interface(name: str, subnet: str, address: str, *, routed: bool = False) -> Interface:
    """Return an interface with an address in a Docker network's subnet, whose first address is the gateway."""
    network = ipaddress.IPv4Network(subnet)
    return Interface(name, f"{address}/{network.prefixlen}", str(network[1]) if routed else None)


def login(like: Like) -> str:
    """Return the account that the lab's key opens: root of a pod, else uid 1000 with password-less sudo."""
    return _OWN_LOGINS.get(like, "admin")


def host_name(like: Like, node: str, address: str) -> str:
    """Return the machine's own host name; only a plain machine uses its lab name. Docker names a pod: empty."""
    if like in PLAIN:
        return node
    if like == "pod":
        return ""
    return f"ip-{address.replace('.', '-')}" if like == "cloud" else f"{node}-{like}"


def own_files(like: Like, name: str, interfaces: Sequence[Interface], *, busy: bool = False) -> dict[str, str]:
    """Return the files, by path, that a machine called `name` has before its first start.

    busy   a cloud machine whose packages are being updated when it is handed over
    """
    match like:
        case "cloud":
            seed = {f"/var/lib/cloud/seed/nocloud/{file}": text for file, text in _seed(name, interfaces).items()}
            return {**seed, BUSY: ""} if busy else seed
        case "server":
            return {"/etc/network/interfaces": _interfaces_file(interfaces)}
    return {}


def _seed(name: str, interfaces: Sequence[Interface]) -> dict[str, str]:
    """Return cloud-init's NoCloud datasource; JSON is YAML."""
    ethernets: dict[str, dict[str, object]] = {card.name: {"addresses": [card.address]} for card in interfaces}
    for card in interfaces:
        if card.gateway:
            ethernets[card.name]["routes"] = [{"to": "0.0.0.0/0", "via": card.gateway}]
            ethernets[card.name]["nameservers"] = {"addresses": ["127.0.0.11"]}
    return {
        "meta-data": json.dumps({"instance-id": f"i-{name}", "local-hostname": name}) + "\n",
        "user-data": "#cloud-config\n{}\n",
        "network-config": json.dumps({"version": 2, "ethernets": ethernets}) + "\n",
    }


def _interfaces_file(interfaces: Sequence[Interface]) -> str:
    """Return ifupdown's file as Debian's installer writes it."""
    blocks = ["source /etc/network/interfaces.d/*", "auto lo\niface lo inet loopback"]
    for card in interfaces:
        # hotplug: Docker has set the interface up already, and a second time is an error.
        lines = [f"allow-hotplug {card.name}", f"iface {card.name} inet static", f"\taddress {card.address}"]
        if card.gateway:
            lines.append(f"\tgateway {card.gateway}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"
