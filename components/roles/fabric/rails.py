"""The RDMA ports of a machine: which of them jobs should use, and which of two machines' belong together.

Ports near a GPU are the rails of a machine that was built for NCCL; those far from all GPUs of such a machine are there
for storage and logins. Near is what `nvidia-smi topo -m` calls PIX or PXB: both below one bridge of the PCI bus, so
that data between them does not pass the CPU.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from components.roles.fabric.networks import VERBS, FabricError, Thing, read
from components.settings.network_names import AUTO, DEVICE, INTERFACE, NO_RDMA

MOST_DEVICES = 32  # as many as NCCL takes (MAX_IB_DEVS)
NVIDIA, DISPLAY = "0x10de", "0x03"
PCI = Path("/sys/bus/pci/devices")
ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# Two kinds of port do not speak with each other: NCCL stops where its list has both. The better one first.
INFINIBAND_LINK, ETHERNET_LINK = LINKS = ("InfiniBand", "Ethernet")


def by_number(name: str) -> list[tuple[int, str]]:
    """What names are sorted by: mlx5_10 comes after mlx5_9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def label(port: Thing) -> str:
    """A port as NCCL and UCX name it."""
    return f"{port['device']}:{port['port']}"


def manages_switches(device: Path) -> bool:
    """Whether a device of a baseboard manages its NVLink switches (B200 and later): no data goes by it."""
    try:
        return b"SW_MNG" in (device / "device/vpd").read_bytes()
    except OSError:
        return False


def ports_up() -> list[Thing]:
    """InfiniBand's and RoCE's ports that are up, by number. `interface` is empty for a port without an IP network."""
    found = []
    for port in VERBS.glob("*/ports/*"):
        device, link = port.parent.parent.name, read(port / "link_layer")
        if manages_switches(port.parent.parent):
            continue
        if "ACTIVE" in read(port / "state") and re.fullmatch(DEVICE, device) and link in LINKS:
            name = read(port / "gid_attrs/ndevs/0")
            if not name:
                cards = sorted(each.name for each in (VERBS / device / "device/net").glob("*"))
                name = cards[0] if len(cards) == 1 else ""
            shown = name if re.fullmatch(INTERFACE, name) else ""
            found.append({"device": device, "port": int(port.name), "interface": shown, "link": link})
    return sorted(found, key=lambda each: by_number(label(each)))


def bridges(device: Path) -> set[str]:
    """The bridges of the PCI bus above a device."""
    return {part for part in device.resolve().parts[:-1] if re.fullmatch(ADDRESS, part)}


def above_gpus() -> list[set[str]]:
    """The bridges above each GPU, in the order of CUDA's numbers."""
    gpus = sorted(path.parent for path in PCI.glob("*/vendor") if read(path) == NVIDIA)
    return [bridges(gpu) for gpu in gpus if read(gpu / "class").startswith(DISPLAY)]


def chosen(ports: Sequence[Thing], setting: str) -> list[Thing]:
    """Those of a machine's ports that its jobs should use, each with its `rail`: the first GPU near it, -1 for none.

    setting   auto, none, or names of devices and ports with commas between; FabricError where none of them is here
    """
    gpus = above_gpus()
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
    # A GPU that no device is near to needs the far ones. One that is near and down has its place all the same.
    served = all(any(above & each for each in devices.values()) for above in gpus)
    return (near if setting == AUTO and near and served else rails)[:MOST_DEVICES]


def paired(mine: Sequence[Thing], theirs: Sequence[Thing]) -> list[tuple[Thing, Thing]]:
    """Ports of two machines that belong together, of one kind: those of one rail, and what is left in their order.

    Names say nothing: machines of one kind may number their devices differently.
    """
    pairs: list[tuple[Thing, Thing]] = []
    own_left, their_left = list(mine), list(theirs)
    for alike in (("link", "rail"), ("link",)):
        for own in [*own_left]:
            fitting = (each for each in their_left if all(own.get(key) == each.get(key) for key in alike))
            if other := next(fitting, None):
                pairs.append((own, other))
                own_left.remove(own)
                their_left.remove(other)
    return pairs
