"""The RDMA ports of a machine: the ports that jobs should use, and the pairs of ports of two machines.

On machines built for NCCL the ports near a GPU are its rails; ports far from all GPUs are for storage and logins. A
port is near a GPU if both are below one PCI bridge (PIX or PXB in `nvidia-smi topo -m`): data does not pass the CPU.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from components.roles.fabric.networks import VERBS, FabricError, Thing, read
from components.settings.network_names import AUTO, DEVICE, INTERFACE, NO_RDMA

MOST_DEVICES = 32  # NCCL's limit (MAX_IB_DEVS)
NVIDIA, DISPLAY = "0x10de", "0x03"
PCI = Path("/sys/bus/pci/devices")
ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# The better kind first. The two kinds cannot communicate: NCCL stops if its list contains both.
INFINIBAND_LINK, ETHERNET_LINK = LINKS = ("InfiniBand", "Ethernet")


def by_number(name: str) -> list[tuple[int, str]]:
    """Return a sort key by number: mlx5_10 comes after mlx5_9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def label(port: Thing) -> str:
    """Return a port's name in NCCL and UCX."""
    return f"{port['device']}:{port['port']}"


def manages_switches(device: Path) -> bool:
    """Return whether a device only manages a baseboard's NVLink switches (B200 and later): it carries no data."""
    try:
        return b"SW_MNG" in (device / "device/vpd").read_bytes()
    except OSError:
        return False


def ports_up() -> list[Thing]:
    """Return the InfiniBand and RoCE ports that are up, by number; `interface` is empty without an IP network."""
    ports = []
    for port in VERBS.glob("*/ports/*"):
        device, link = port.parent.parent.name, read(port / "link_layer")
        if manages_switches(port.parent.parent):
            continue
        if "ACTIVE" in read(port / "state") and re.fullmatch(DEVICE, device) and link in LINKS:
            name = read(port / "gid_attrs/ndevs/0")
            if not name:
                cards = sorted(card.name for card in (VERBS / device / "device/net").glob("*"))
                name = cards[0] if len(cards) == 1 else ""
            interface = name if re.fullmatch(INTERFACE, name) else ""
            ports.append({"device": device, "port": int(port.name), "interface": interface, "link": link})
    return sorted(ports, key=lambda port: by_number(label(port)))


def bridges(device: Path) -> set[str]:
    """Return the PCI bridges above a device."""
    return {part for part in device.resolve().parts[:-1] if re.fullmatch(ADDRESS, part)}


def gpu_bridges() -> list[set[str]]:
    """Return the PCI bridges above each GPU, in CUDA's order."""
    gpus = sorted(path.parent for path in PCI.glob("*/vendor") if read(path) == NVIDIA)
    return [bridges(gpu) for gpu in gpus if read(gpu / "class").startswith(DISPLAY)]


def select_ports(ports: Sequence[Thing], setting: str) -> list[Thing]:
    """Return the ports that jobs should use, each with its `rail`: the first GPU near it, or -1.

    setting   auto, none, or names of devices and ports, separated by commas; FabricError if none of them exists
    """
    gpus = gpu_bridges()
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
