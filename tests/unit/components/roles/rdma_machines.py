"""Machines with RDMA as sysfs shows them, and the NCCL_IB_HCA that somebody who knows the machine writes for it.

Addresses, names and what is near what: DGX A100 (NVIDIA/nccl issue 1505; user guide, "network ports"), DGX H100 (user
guide, table 6; `nvidia-smi topo -m` in bytedance/flux issue 14), OCI BM.GPU.H100.8 (the list of Oracle's own nccl-tests
scripts; `nvidia-smi topo -m` of BM.GPU4.8 for how its two front-end ports stand apart), p5.48xlarge and an Azure VM
(link layer and buses; the plugin of EFA needs no list), Tencent's HCC (eight bonded pairs).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from components.roles.network.fabric import networks

IB, ETHERNET, EFA = "InfiniBand", "Ethernet", "Unspecified"


@dataclass(frozen=True)
class Port:
    """A device's port 1; `path` is where the device is on the PCI bus."""

    device: str
    path: str
    link: str = IB
    up: bool = True
    interface: str = ""


@dataclass(frozen=True)
class Machine:
    """GPUs by their places on the PCI bus, and RDMA devices; `hca` are those that NCCL should use."""

    gpus: Sequence[str]
    ports: Sequence[Port]
    hca: Sequence[str]
    also: Sequence[str] = field(default=())  # NVIDIA's devices that are no GPUs, such as NVSwitches

    @property
    def variable(self) -> str | None:
        """What NCCL_IB_HCA should be; None where it should not be set."""
        return "=" + ",".join(f"{device}:1" for device in self.hca) if self.hca else None


def behind(root: int, device: str) -> str:
    """A place behind a root port of its own and the two bridges of a switch: `device` is BUS:DEVICE.FUNCTION."""
    return f"pci0000:{root:02x}/0000:{root:02x}:01.1/0000:{root + 1:02x}:00.0/0000:{root + 2:02x}:00.0/0000:{device}"


def alone(device: str) -> str:
    """A place right below a host bridge of its own."""
    return f"pci{device[:-5]}:00/{device}"


def _dgx_a100() -> Machine:
    # Four switches with two GPUs and two adapters each; storage on a fifth root port.
    gpus, ports = [], []
    switches = {
        0x01: ("07", "0f", "0c", "12"),
        0x41: ("47", "4e", "4b", "54"),
        0x81: ("87", "90", "8d", "94"),
        0xB1: ("b7", "bd", "ba", "cc"),
    }
    numbers = iter((0, 1, 2, 3, 6, 7, 8, 9))
    for root, (*two, one, other) in switches.items():
        gpus += [behind(root, f"{bus}:00.0") for bus in two]
        ports += [Port(f"mlx5_{next(numbers)}", behind(root, f"{bus}:00.0"), interface="") for bus in (one, other)]
    ports += [
        Port("mlx5_4", behind(0x60, "61:00.0"), ETHERNET, interface="enp97s0f0"),
        Port("mlx5_5", behind(0x60, "61:00.1"), IB),
    ]
    return Machine(gpus, ports, [f"mlx5_{number}" for number in (0, 1, 2, 3, 6, 7, 8, 9)], [behind(0xC1, "c4:00.0")])


def _dgx_h100() -> Machine:
    # Each GPU has an adapter of its own behind a root port of their own; two storage cards have one port of each kind.
    buses = {"1b": "18", "43": "40", "52": "4f", "61": "5e", "9d": "9a", "c3": "c0", "d1": "ce", "df": "dc"}
    numbers = (0, 3, 4, 5, 6, 9, 10, 11)
    roots = [int(bus, 16) - 3 for bus in buses.values()]
    gpus = [behind(root, f"{gpu}:00.0") for root, gpu in zip(roots, buses, strict=True)]
    ports = [
        Port(f"mlx5_{number}", behind(root, f"{bus}:00.0"), interface=f"ibp{int(bus, 16)}s0")
        for number, root, bus in zip(numbers, roots, buses.values(), strict=True)
    ]
    for first, bus in ((1, "29"), (7, "aa")):
        root = int(bus, 16) - 2
        ports += [
            Port(f"mlx5_{first}", behind(root, f"{bus}:00.0"), IB),
            Port(f"mlx5_{first + 1}", behind(root, f"{bus}:00.1"), ETHERNET),
        ]
    return Machine(gpus, ports, [f"mlx5_{number}" for number in numbers])


def _oci_h100() -> Machine:
    # 18 devices of RoCE: two ports of a card near each GPU, and two of the front end.
    cards = {"0c": "0f", "2a": "2d", "41": "44", "58": "5b", "86": "89", "a5": "a8", "bd": "c0", "d5": "d8"}
    numbers = (0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17)
    gpus, ports = [], []
    left = iter(numbers)
    for bus, gpu in cards.items():
        root = int(bus, 16) - 3
        gpus.append(behind(root, f"{gpu}:00.0"))
        ports += [
            Port(
                f"mlx5_{number}", behind(root, f"{bus}:00.{place}"), ETHERNET, interface=f"rdma{numbers.index(number)}"
            )
            for place, number in enumerate((next(left), next(left)))
        ]
    ports += [
        Port("mlx5_2", behind(0x1D, "1f:00.0"), ETHERNET, interface="eth0"),
        Port("mlx5_11", behind(0x98, "9a:00.0"), ETHERNET, interface="eth1"),
    ]
    return Machine(gpus, ports, [f"mlx5_{number}" for number in numbers])


def _p5() -> Machine:
    gpus = [behind(0x40 + 8 * place, f"{0x53 + 8 * place:02x}:00.0") for place in range(8)]
    ports = [
        Port(f"rdmap{0x4F + 8 * place + at}s0", behind(0x40 + 8 * place, f"{0x4F + 8 * place + at:02x}:00.0"), EFA)
        for place in range(8)
        for at in range(4)
    ]
    return Machine(gpus, ports, [])


def _bonded() -> Machine:
    # Eight pairs of RoCE ports, each pair one device, two GPUs behind each second switch; bond0 is the front end's.
    gpus = [behind(0x10 + 0x18 * place, f"{0x15 + 0x18 * place:02x}:00.0") for place in range(8)]
    ports = [
        Port(
            f"mlx5_bond_{place + 1}",
            behind(0x10 + 0x18 * place, f"{0x18 + 0x18 * place:02x}:00.0"),
            ETHERNET,
            interface=f"bond{place + 1}",
        )
        for place in range(8)
    ]
    ports.append(Port("mlx5_bond_0", behind(0xE0, "e3:00.0"), ETHERNET, interface="bond0"))
    return Machine(gpus, ports, [f"mlx5_bond_{place}" for place in range(1, 9)])


MACHINES = {
    "DGX A100": _dgx_a100(),
    "DGX H100": _dgx_h100(),
    "OCI H100": _oci_h100(),
    "p5": _p5(),
    "RoCE with bonded ports": _bonded(),
    # Each device has a host bridge of its own, so nothing is near anything.
    "cloud VM with one mlx5": Machine(
        [alone("0001:00:00.0")], [Port("mlx5_0", alone("bea5:00:02.0"), ETHERNET, interface="eth1")], ["mlx5_0"]
    ),
    # The same, with eight rails of InfiniBand beside the accelerated network.
    "cloud VM with InfiniBand": Machine(
        [alone(f"000{place}:00:00.0") for place in range(1, 9)],
        [
            *(Port(f"mlx5_ib{place}", alone(f"010{place + 1}:00:00.0"), interface=f"ib{place}") for place in range(8)),
            Port("mlx5_an0", alone("bea5:00:02.0"), ETHERNET, interface="eth1"),
        ],
        [f"mlx5_ib{place}" for place in range(8)],
    ),
    # A server with two adapters, of which one is near two of its four GPUs: the others need the far one.
    "server with two adapters": Machine(
        [behind(0x10, "13:00.0"), behind(0x10, "14:00.0"), behind(0x80, "83:00.0"), behind(0x80, "84:00.0")],
        [Port("mlx5_0", behind(0x10, "15:00.0")), Port("mlx5_1", behind(0xA0, "a3:00.0"))],
        ["mlx5_0", "mlx5_1"],
    ),
    "without GPUs": Machine(
        [], [Port("mlx5_0", behind(0x10, "13:00.0")), Port("mlx5_1", behind(0x20, "23:00.0"), up=False)], ["mlx5_0"]
    ),
}


def build(machine: Machine, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the program see the machine, in a sysfs below `root`."""
    devices, verbs, pci = root / "devices", root / "class/infiniband", root / "bus/pci/devices"
    for folder in (verbs, pci):
        folder.mkdir(parents=True)
    for place, kind in _nvidia(machine):
        (devices / place).mkdir(parents=True)
        (devices / place / "vendor").write_text("0x10de\n")
        (devices / place / "class").write_text(f"{kind}\n")
        (pci / place.rpartition("/")[2]).symlink_to(devices / place)
    for port in machine.ports:
        (devices / port.path).mkdir(parents=True, exist_ok=True)
        folder = verbs / port.device / "ports/1"
        (folder / "gid_attrs/ndevs").mkdir(parents=True)
        (verbs / port.device / "device").symlink_to(devices / port.path)
        (folder / "link_layer").write_text(f"{port.link}\n")
        (folder / "state").write_text("4: ACTIVE\n" if port.up else "1: DOWN\n")
        (folder / "gid_attrs/ndevs/0").write_text(f"{port.interface}\n")
    for module in (networks, networks):
        monkeypatch.setattr(module, "VERBS", verbs)
    monkeypatch.setattr(networks, "PCI", pci)


def _nvidia(machine: Machine) -> Iterator[tuple[str, str]]:
    yield from ((place, "0x030200") for place in machine.gpus)
    yield from ((place, "0x068000") for place in machine.also)
