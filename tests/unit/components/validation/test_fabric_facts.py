"""What a node has that could carry the data: found, brought back, and compared with what did."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.validation import fabric_facts
from components.validation.fabric_facts import EFA, INFINIBAND, ROCE, FabricFacts, read_fabric_facts
from components.validation.transport import NOTHING, Expected, Transport, complaint, expect, proven

# As nvidia-smi 580 prints it: a machine with two GPUs on NVLink and two network devices.
TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\tSYS\t0-31\t0\t\tN/A
GPU1\tNV18\t X \tSYS\tPXB\t0-31\t0\t\tN/A
NIC0\tPIX\tSYS\t X \tSYS\t\t\t\t
NIC1\tSYS\tPXB\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NIC0: mlx5_0
"""
PORT = {"device": "mlx5_0", "port": 1, "driver": "mlx5_core", "link": "InfiniBand", "up": True}
FULL: dict[str, Any] = {"rdma": [PORT], "gpus": ["NV18"], "nics": ["PIX", "SYS"], "p2p": True}
FULL |= {"peermem": True, "dmabuf": False}


def line(node: str = "a", **changes: Any) -> str:
    return f"# tailrack there {node} {json.dumps({**FULL, **changes})}\n"


def presence(**changes: Any) -> FabricFacts:
    return FabricFacts(**{"ports": {}, "nvlink": None, "p2p": None, "near": False, "direct": False, **changes})


def test_ways_between_gpus_and_to_network_devices_are_read_from_the_topology() -> None:
    topology = fabric_facts.matrix(TOPOLOGY)
    assert fabric_facts.ways(topology, "GPU") == ["NV18"]
    assert fabric_facts.ways(topology, "NIC") == ["PIX", "PXB", "SYS"]


def mesh(gpus: int, *others: tuple[int, int], word: str = "NODE") -> str:
    """A topology of GPUs that are all joined by NVLink, but some pairs."""
    rows = ["\t" + "\t".join(f"GPU{number}" for number in range(gpus))]
    for row in range(gpus):
        cells = [
            " X " if row == column else word if {(row, column), (column, row)} & {*others} else "NV18"
            for column in range(gpus)
        ]
        rows.append(f"GPU{row}\t" + "\t".join(cells))
    return "\n".join(rows) + "\n"


BRIDGED = [(a, b) for a in range(4) for b in range(a) if (a, b) not in ((1, 0), (3, 2))]


def test_a_machine_with_one_lost_link_has_nvlink_and_bridged_pairs_do_not() -> None:
    expected: dict[str | None, bool | None] = {
        mesh(4): True,
        mesh(8, (0, 1)): True,
        mesh(8, *((0, other) for other in range(1, 8))): True,  # one GPU has lost all its links
        mesh(4, *BRIDGED, word="SYS"): False,
        mesh(8, (0, 1), word="ERR!"): True,
        None: None,
        "No devices were found\n": None,
    }
    assert {text: fabric_facts.meshed(fabric_facts.matrix(text)) for text in expected} == expected


@pytest.mark.parametrize("text", [None, "", "No devices were found\n", "GPU0 without tabs\n"])
def test_a_topology_that_is_none_says_nothing(text: str | None) -> None:
    assert fabric_facts.ways(fabric_facts.matrix(text), "GPU") is None


IN_SYSFS = "sys/class/infiniband"


def port(folder: Path, device: str, link: str, state: str) -> None:
    """Write a port as the kernel shows it."""
    place = folder / device / "ports/1"
    place.mkdir(parents=True)
    (place / "link_layer").write_text(f"{link}\n")
    (place / "state").write_text(f"{state}\n")


def test_the_kernel_lists_the_ports_of_a_fabric(tmp_path: Path) -> None:
    port(tmp_path / IN_SYSFS, "mlx5_0", "InfiniBand", "4: ACTIVE")
    port(tmp_path / IN_SYSFS, "mlx5_1", "Ethernet", "1: DOWN")
    found = fabric_facts.rdma_ports(tmp_path, tmp_path / "none")
    ports = [(each["device"], each["port"], each["link"], each["up"]) for each in found]
    assert ports == [("mlx5_0", 1, "InfiniBand", True), ("mlx5_1", 1, "Ethernet", False)]


def test_a_port_that_manages_nvlink_switches_is_no_way_for_data(tmp_path: Path) -> None:
    for name in ("mlx5_0", "mlx5_4"):
        port(tmp_path / IN_SYSFS, name, "InfiniBand", "4: ACTIVE")
    health = tmp_path / "health.json"
    looks = {"management ports": {"status": 0, "output": "mlx5_4"}}
    for text, devices in ((json.dumps({"time": 1, "looks": looks}), ["mlx5_0"]), ("no JSON", ["mlx5_0", "mlx5_4"])):
        health.write_text(text)
        found = fabric_facts.rdma_ports(tmp_path, health)
        assert [port["device"] for port in found] == devices


def test_this_machine_is_looked_at_without_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    fabric_facts.main([])
    (found,) = read_fabric_facts(capsys.readouterr().out).values()
    assert isinstance(found, FabricFacts)


@pytest.mark.parametrize(
    "damaged",
    [
        line()[:-3],
        line().replace("true", "maybe"),
        line(gpus="NV18"),
        line(gpus=["NV18; rm -rf"]),
        line(rdma=[{"device": "mlx5_0"}]),
        line(rdma=None),
        line(extra=1),
        line(p2p=1),
        "# tailrack there a []\n",
    ],
)
def test_a_line_that_is_not_whole_is_as_good_as_none(damaged: str) -> None:
    assert read_fabric_facts(damaged) == {}


def test_a_device_on_all_nodes_is_expected() -> None:
    cases: list[tuple[dict[str, FabricFacts], str, tuple[str | None, str | None]]] = [
        ({"a": presence(nvlink=True)}, "a", ("NVLink", None)),
        ({"a": presence(nvlink=False, p2p=True)}, "a", ("P2P over PCIe", None)),
        ({"a": presence(nvlink=False)}, "a", (None, None)),
        ({}, "a", (None, None)),
        ({"a": presence(ports={"m:1": INFINIBAND})}, "ab", (None, None)),
        ({"a": presence(ports={"m:1": INFINIBAND}), "b": presence()}, "ab", ("sockets", "eth0")),
        *(
            ({"a": presence(ports={"m:1": kind}), "b": presence(ports={"n:1": kind})}, "ab", (name, None))
            for kind, name in ((INFINIBAND, "InfiniBand"), (EFA, "Libfabric"), (ROCE, "RoCE"))
        ),
    ]
    for own, nodes, expected in cases:
        found = expect(tuple(nodes), own, "eth0", spans=False)
        assert (found.transport, found.interface) == expected, own


BOTH = {name: presence(ports={"m_0:1": INFINIBAND, "m_1:1": INFINIBAND}) for name in "ab"}


@pytest.mark.parametrize(
    ("own", "rdma", "transport", "words"),
    [
        (BOTH, "none", "sockets", "no RDMA port that jobs may use"),
        (BOTH, "m_1", "InfiniBand", "InfiniBand is up (a m_1:1; b m_1:1)"),
        (BOTH, "m_1:1,m_9", "InfiniBand", "(a m_1:1; b m_1:1)"),
        (BOTH, "m_9", "sockets", "no RDMA port that jobs may use"),
        (BOTH, "tailnet", "sockets", "the site's config selects the tailnet"),
        (BOTH, "infiniband", "InfiniBand", "InfiniBand is up"),
        ({name: presence(ports={"e:1": EFA}) for name in "ab"}, "none", "Libfabric", "Libfabric is up"),
        ({name: presence(ports={"e:1": EFA}) for name in "ab"}, "tailnet", "sockets", "selects the tailnet"),
    ],
)
def test_an_excluded_device_is_not_expected(own: dict[str, FabricFacts], rdma: str, transport: str, words: str) -> None:
    found = expect(("a", "b"), own, "eth0", spans=False, rdma=rdma)
    assert found.transport == transport
    assert words in found.where


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"peermem": True, "dmabuf": False}, (True, ())),
        ({"peermem": False, "dmabuf": True}, (True, ())),
        ({"peermem": False, "dmabuf": False}, (True, ("a", "b"))),
        ({"peermem": False, "dmabuf": True, "nics": ["NODE", "SYS"]}, (False, ())),
        ({"peermem": False, "dmabuf": False, "efa": True}, (True, ())),
    ],
)
def test_gpudirect_is_expected_of_a_near_device(own: dict[str, Any], expected: tuple[bool, tuple[str, ...]]) -> None:
    port = {"device": "rdmap0", "port": 1, "driver": "efa", "link": "Unspecified", "up": True}
    changes = {key: value for key, value in own.items() if key != "efa"} | ({"rdma": [port]} if "efa" in own else {})
    found = expect(("a", "b"), read_fabric_facts(line("a", **changes) + line("b", **changes)), "eth0", spans=False)
    assert (found.gpudirect, found.denied) == expected


@pytest.mark.parametrize(
    ("expected", "used", "words"),
    [
        (Expected("InfiniBand"), Transport("sockets", "eth0"), ("sockets over eth0", "NCCL_IB_DISABLE")),
        (Expected("InfiniBand"), Transport("InfiniBand + GPUDirect RDMA, sockets", None), ("sockets",)),
        (Expected("RoCE"), Transport("sockets", "eth0"), ("NCCL_IB_GID_INDEX",)),
        (Expected("Libfabric"), Transport("sockets", "eth0"), ("aws-ofi-nccl",)),
        (Expected("NVLink"), Transport("SHM", None), ("NCCL_P2P_DISABLE", "nvlink --status")),
        (Expected("NVLink"), Transport("P2P over PCIe", None), ("NCCL_P2P_LEVEL",)),
        (Expected("P2P over PCIe"), Transport("SHM", None), ("ACS",)),
        (Expected("sockets", "eth1"), Transport("sockets", "eth0"), ("eth0", "eth1", "NCCL_SOCKET_IFNAME")),
        (Expected("sockets", "eth1"), Transport("sockets", None), ("NCCL_SOCKET_IFNAME",)),
        (Expected("InfiniBand", gpudirect=True), Transport("InfiniBand", "mlx5_0"), ("NCCL_NET_GDR_LEVEL",)),
        (
            Expected("InfiniBand", gpudirect=True, denied=("a",)),
            Transport("InfiniBand", "mlx5_0"),
            ("a has neither nvidia_peermem nor DMA-BUF", "modprobe nvidia_peermem"),
        ),
        (Expected("Libfabric", gpudirect=True), Transport("Libfabric", None), ("NCCL_NET_GDR_LEVEL",)),
    ],
)
def test_an_unexpected_path_names_the_next_check(expected: Expected, used: Transport, words: tuple[str, ...]) -> None:
    said = complaint(expected, used)
    assert said is not None
    for word in words:
        assert word in said
    assert "None" not in said


@pytest.mark.parametrize(
    ("expected", "used"),
    [
        (NOTHING, Transport("sockets", "eth0")),
        (NOTHING, Transport(None, None)),
        (Expected("InfiniBand", gpudirect=True), Transport("InfiniBand + GPUDirect RDMA", "mlx5_0")),
        (Expected("InfiniBand"), Transport("InfiniBand", "mlx5_0")),
        (Expected("InfiniBand"), Transport("NVLink", None)),  # one NVLink over several nodes
        (Expected("InfiniBand"), Transport("IBext_v10 + GPUDirect RDMA", None)),
        (Expected("InfiniBand"), Transport("COLLNET SHARP", None)),
        (Expected("sockets", "eth0"), Transport("sockets", "eth0")),
        (Expected("NVLink"), Transport("NVLink", None)),
        (Expected("P2P over PCIe"), Transport("P2P over PCIe", None)),
    ],
)
def test_the_expected_path_is_accepted_and_an_unclear_log_proves_none(expected: Expected, used: Transport) -> None:
    assert complaint(expected, used) is None
    assert proven(expected, used)
    assert not proven(Expected("NVLink"), Transport("P2P", None))
    assert not proven(Expected("sockets", "eth0"), Transport(None, None))
