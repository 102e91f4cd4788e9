"""The network interfaces of a machine that may be its site's fabric. rails.py has its RDMA ports."""

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
# Mb/s; drivers report more for an unknown speed.
MOST_SPEED = 10**7
ETHERNET, INFINIBAND = 1, 32  # ARPHRD_ of if_arp.h
NET, VERBS = Path("/sys/class/net"), Path("/sys/class/infiniband")
TAILNET_RANGE = ipaddress.IPv4Network("100.64.0.0/10")

Thing = dict[str, Any]


class FabricError(Exception):
    """An error; its text is for the administrator."""


def json_output(*command: str) -> Any:
    """Run a command and return its JSON output."""
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]")


def read(path: Path) -> str:
    """Return the text of a file in sysfs; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def may_be_fabric(name: str, address: ipaddress.IPv4Interface, is_default: bool) -> bool:
    """Return whether `auto` considers an interface: a network card with a private address (data is not encrypted)."""
    card = read(NET / name / "type") in (str(ETHERNET), str(INFINIBAND))
    # A bridge reaches only local containers and virtual machines, unless the default route uses it.
    inner_bridge = (NET / name / "bridge").exists() and not is_default
    private = address.ip.is_private and not address.ip.is_link_local and not address.ip.is_loopback
    return card and not inner_bridge and private and address.ip not in TAILNET_RANGE


def interfaces(setting: str, with_rdma: Collection[str]) -> list[Thing]:
    """Return the interfaces that may be a fabric's; raise FabricError if the configured one does not exist.

    with_rdma   names of interfaces with an RDMA port
    """
    defaults = {route.get("dev") for route in json_output("ip", "-json", "-4", "route", "show", "default")}
    result, all_names = [], []
    for link in json_output("ip", "-json", "-4", "address", "show", "up"):
        # Some versions of ip print an empty object for a link without such an address.
        name = link.get("ifname", "")
        addresses = [entry for entry in link.get("addr_info", ()) if entry["family"] == "inet"]
        all_names += [name] if addresses and name not in ("lo", "tailscale0") else []
        if not addresses or not re.fullmatch(INTERFACE, name) or setting not in ("auto", name):
            continue
        address = ipaddress.IPv4Interface(f"{addresses[0]['local']}/{addresses[0]['prefixlen']}")
        if setting == "auto" and not may_be_fabric(name, address, name in defaults):
            continue
        speed = read(NET / name / "speed")
        result.append(
            {
                "name": name,
                "address": str(address),
                "default_route": name in defaults,
                "speed": int(speed) if speed.isdigit() and int(speed) <= MOST_SPEED else 0,
                "rdma": name in with_rdma,
            }
        )
    if setting != "auto" and not result:
        raise FabricError(f"there is no interface {setting} with an IPv4 address here ({', '.join(all_names)})")
    return result[:MOST_INTERFACES]


def gid_index(device: str, port: int) -> int | None:
    """Return the GID index of RoCE v2 with an IPv4 address; None for InfiniBand, which does not need one."""
    folder = VERBS / device / "ports" / str(port)
    for path in sorted((folder / "gid_attrs/types").glob("*"), key=lambda path: int(path.name)):
        if read(path) == "RoCE v2" and read(folder / "gids" / path.name).startswith("0000:0000:0000:0000:0000:ffff"):
            return int(path.name)
    return None
