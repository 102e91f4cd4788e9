"""A machine's networks: interfaces, RDMA ports, and the GPUs next to them.

On machines built for NCCL the ports near a GPU are its rails; ports far from all GPUs are for storage and logins. A
port is near a GPU if both are below one PCI bridge (PIX or PXB in `nvidia-smi topo -m`): data does not pass the CPU.
"""

import ipaddress
import json
import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from components.settings.network_names import AUTO, DEVICE, INTERFACE, NO_RDMA
from components.validation.preflight.adapters import manages_switches
from components.validation.preflight.links import DISPLAYS, PCI, nvidia_devices
from components.validation.this_node import text_of

# Machines take the head node's requests to prove a fabric at this port, on the tailnet only.
PORT = 6816
MOST_INTERFACES = 16
MOST_AT_ONCE = MOST_INTERFACES**2  # pairs of two machines' interfaces
# Mb/s; drivers report more for an unknown speed.
MOST_SPEED = 10**7
ETHERNET, INFINIBAND = 1, 32  # ARPHRD_ of if_arp.h
NET, VERBS = Path("/sys/class/net"), Path("/sys/class/infiniband")
TAILNET_RANGE = ipaddress.IPv4Network("100.64.0.0/10")
Thing = dict[str, Any]
MOST_DEVICES = 32  # NCCL's limit (MAX_IB_DEVS)
ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# The better kind first. The two kinds cannot communicate: NCCL stops if its list contains both.
INFINIBAND_LINK, ETHERNET_LINK = LINKS = ("InfiniBand", "Ethernet")


class FabricError(Exception):
    """An error; its text is for the administrator."""


def json_output(*command: str) -> Any:
    """Run a command and return its JSON output."""
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout or "[]")


def may_be_fabric(name: str, address: ipaddress.IPv4Interface, is_default: bool) -> bool:
    """Return whether `auto` considers an interface: a network card with a private address (data is not encrypted)."""
    card = text_of(NET / name / "type") in (str(ETHERNET), str(INFINIBAND))
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
        speed = text_of(NET / name / "speed")
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
        gid = text_of(folder / "gids" / path.name)
        if text_of(path) == "RoCE v2" and gid.startswith("0000:0000:0000:0000:0000:ffff"):
            return int(path.name)
    return None


def by_number(name: str) -> list[tuple[int, str]]:
    """Return a sort key by number: mlx5_10 comes after mlx5_9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def label(port: Thing) -> str:
    """Return a port's name in NCCL and UCX."""
    return f"{port['device']}:{port['port']}"


def ports_up() -> list[Thing]:
    """Return the InfiniBand and RoCE ports that are up, by number; `interface` is empty without an IP network."""
    ports = []
    for port in VERBS.glob("*/ports/*"):
        device, link = port.parent.parent.name, text_of(port / "link_layer")
        if manages_switches(port.parent.parent):
            continue
        if "ACTIVE" in text_of(port / "state") and re.fullmatch(DEVICE, device) and link in LINKS:
            name = text_of(port / "gid_attrs/ndevs/0")
            if not name:
                cards = sorted(card.name for card in (VERBS / device / "device/net").glob("*"))
                name = cards[0] if len(cards) == 1 else ""
            interface = name if re.fullmatch(INTERFACE, name) else ""
            ports.append({"device": device, "port": int(port.name), "interface": interface, "link": link})
    return sorted(ports, key=lambda port: by_number(label(port)))


def bridges(device: Path) -> set[str]:
    """Return the PCI bridges above a device."""
    return {part for part in device.resolve().parts[:-1] if re.fullmatch(ADDRESS, part)}


def select_ports(ports: Sequence[Thing], setting: str) -> list[Thing]:
    """Return the ports that jobs should use, each with its `rail`: the first GPU near it, or -1.

    setting   auto, none, or names of devices and ports, separated by commas; FabricError if none of them exists
    """
    # The PCI bridges above each GPU, in CUDA's order.
    gpus = [bridges(PCI / gpu) for gpu in nvidia_devices(DISPLAYS, PCI)]
    devices = {path.name: bridges(path / "device") for path in VERBS.glob("*")}
    names = {*setting.split(",")}
    if setting == NO_RDMA:
        ports = []
    elif setting != AUTO:
        if devices and not {name.partition(":")[0] for name in names} & {*devices}:
            raise FabricError(f"there is no RDMA device {setting} here ({', '.join(sorted(devices, key=by_number))})")
        ports = [port for port in ports if {port["device"], label(port)} & names]
    rails = [
        {**port, "rail": next((gpu for gpu, above in enumerate(gpus) if above & devices[port["device"]]), -1)}
        for port in ports
    ]
    near = [port for port in rails if port["rail"] >= 0]
    # A GPU without a near device needs the far ports. A near device counts also while it is down.
    served = all(any(above & below for below in devices.values()) for above in gpus)
    return (near if setting == AUTO and near and served else rails)[:MOST_DEVICES]


def pair_ports(mine: Sequence[Thing], theirs: Sequence[Thing]) -> list[tuple[Thing, Thing]]:
    """Pair the ports of two machines: ports of one kind and rail first, then the others of one kind in their order.

    Names do not help: machines of one model may number their devices differently.
    """
    pairs: list[tuple[Thing, Thing]] = []
    my_rest, their_rest = list(mine), list(theirs)
    for keys in (("link", "rail"), ("link",)):
        for port in [*my_rest]:
            matches = (their for their in their_rest if all(port.get(key) == their.get(key) for key in keys))
            if match := next(matches, None):
                pairs.append((port, match))
                my_rest.remove(port)
                their_rest.remove(match)
    return pairs
