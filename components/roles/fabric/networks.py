"""The network interfaces of a machine that may be its site's fabric; its RDMA ports are in rails.py."""

import ipaddress
import json
import re
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

from components.settings.network_names import INTERFACE

MOST_INTERFACES = 16
MOST_AT_ONCE = MOST_INTERFACES**2  # pairs of two machines' interfaces
# Mb/s; what is more is a driver's word for "unknown".
MOST_SPEED = 10**7
ETHERNET, INFINIBAND = 1, 32  # ARPHRD_ of if_arp.h
NET, VERBS = Path("/sys/class/net"), Path("/sys/class/infiniband")
TAILNET_RANGE = ipaddress.IPv4Network("100.64.0.0/10")

Thing = dict[str, Any]


class FabricError(Exception):
    """What happened, in words for the one who wrote the config."""


def told(*command: str) -> Any:
    """What a command says in JSON."""
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]")


def read(path: Path) -> str:
    """The text of a file of sysfs; empty where it has none to give."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def may_be_fabric(name: str, address: ipaddress.IPv4Interface, is_default: bool) -> bool:
    """Whether `auto` looks at an interface: a network card's, with a private address. Data on it is not encrypted."""
    card = read(NET / name / "type") in (str(ETHERNET), str(INFINIBAND))
    # Bridges of containers and virtual machines lead to those alone; one that leads out is the machine's network.
    own_bridge = (NET / name / "bridge").exists() and not is_default
    private = address.ip.is_private and not address.ip.is_link_local and not address.ip.is_loopback
    return card and not own_bridge and private and address.ip not in TAILNET_RANGE


def interfaces(setting: str, with_rdma: Collection[str]) -> list[Thing]:
    """The interfaces that may be a fabric's; FabricError where the one asked for is not here.

    with_rdma   names of those that an RDMA port has
    """
    defaults = {route.get("dev") for route in told("ip", "-json", "-4", "route", "show", "default")}
    found, all_names = [], []
    for link in told("ip", "-json", "-4", "address", "show", "up"):
        # Some versions of ip leave an empty object in the place of a link without such an address.
        name = link.get("ifname", "")
        here = [each for each in link.get("addr_info", ()) if each["family"] == "inet"]
        all_names += [name] if here and name not in ("lo", "tailscale0") else []
        if not here or not re.fullmatch(INTERFACE, name) or setting not in ("auto", name):
            continue
        address = ipaddress.IPv4Interface(f"{here[0]['local']}/{here[0]['prefixlen']}")
        if setting == "auto" and not may_be_fabric(name, address, name in defaults):
            continue
        speed = read(NET / name / "speed")
        found.append(
            {
                "name": name,
                "address": str(address),
                "default_route": name in defaults,
                "speed": int(speed) if speed.isdigit() and int(speed) <= MOST_SPEED else 0,
                "rdma": name in with_rdma,
            }
        )
    if setting != "auto" and not found:
        raise FabricError(f"there is no interface {setting} with an IPv4 address here ({', '.join(all_names)})")
    return found[:MOST_INTERFACES]


def gid_index(device: str, port: int) -> int | None:
    """The entry of a RoCE port's table for version 2 with an IPv4 address; None for InfiniBand, which needs none."""
    folder = VERBS / device / "ports" / str(port)
    for path in sorted((folder / "gid_attrs/types").glob("*"), key=lambda each: int(each.name)):
        if read(path) == "RoCE v2" and read(folder / "gids" / path.name).startswith("0000:0000:0000:0000:0000:ffff"):
            return int(path.name)
    return None
