"""Which RDMA ports jobs use: from sysfs of real machines to the NCCL_IB_HCA of their tasks."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.node import files, safe_path
from components.roles.network.fabric import groups, proof
from components.roles.network.fabric import networks as fabric_networks
from components.roles.network.fabric.networks import FabricError, Thing
from components.roles.role import template
from components.roles.slurm.slurm.folders import NODES
from tests.unit.components.roles.rdma_machines import ETHERNET, MACHINES, Machine, Port, behind, build

Settings = dict[str, str]
# Whether two ports can reach each other.
Cables = Callable[[Thing, Thing], bool]


class Rack:
    """Machines of one site, from what each of them sees of itself to what its tasks are told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.nodes = folder / NODES.lstrip("/")
        monkeypatch.setattr(safe_path, "root", str(folder))
        files.make_folder(NODES)
        self.asked: list[tuple[str, str]] = []
        self.joined = 0
        self.cables: Cables = lambda own, other: True
        monkeypatch.setattr(groups, "prove", self._proven)

    def _proven(self, mine: Thing, theirs: Thing) -> tuple[list[Any], list[Any]]:
        self.asked.append((mine["node"], theirs["node"]))
        networks = [
            (own, other)
            for own in mine["interfaces"]
            for other in theirs["interfaces"]
            if proof.may_share_network(own, other, mine["setting"])
        ]
        ports = [pair for pair in fabric_networks.pair_ports(mine["rdma"], theirs["rdma"]) if self.cables(*pair)]
        return networks, ports

    def ports(self, machine: Machine, rdma: str = "auto") -> list[Thing]:
        """What its join step answers."""
        with self.monkeypatch.context() as patch:
            build(machine, self.folder / f"sys-{len(list(self.folder.iterdir()))}", patch)
            return fabric_networks.select_ports(fabric_networks.ports_up(), rdma)

    def join(
        self,
        node: str,
        machine: Machine,
        rdma: str = "auto",
        *,
        setting: str = "auto",
        interface: str | None = "eth0",
        island: str = "",
    ) -> Thing:
        """Its member step. `interface` has its private address; `island` is the fabric that its RDMA ports are in."""
        self.joined += 1
        address = f"10.1.{self.joined // 200}.{self.joined % 200 + 1}/16"
        known = {"name": interface, "address": address, "default_route": False, "speed": 1000, "rdma": False}
        ports = [{**port, "island": island} for port in self.ports(machine, rdma)]
        what = {"node": node, "site": "rack", "setting": setting, "address": "100.64.0.1"}
        return groups.prove_node({**what, "interfaces": [known] if interface else [], "rdma": ports})

    def task(self, me: str, *nodes: str) -> Settings:
        """What a task on a node of a job is told."""
        conf = self.folder / "topology.conf"
        conf.write_text("".join(path.read_text().lstrip() for path in sorted(self.nodes.glob("*/fabric"))))
        scontrol = self.folder / "scontrol"
        scontrol.write_text('#!/bin/sh\nprintf "%s\\n" "$3" | tr , "\\n"\n')
        scontrol.chmod(0o755)
        text = template("fabric", "task-prolog").replace("/run/slurm/conf/topology.conf", str(conf))
        program = self.folder / "task-prolog"
        program.write_text(text.replace("/usr/bin/scontrol", str(scontrol)))
        environment = {"SLURM_JOB_NODELIST": ",".join(nodes), "SLURMD_NODENAME": me, "PATH": "/usr/bin:/bin"}
        done = subprocess.run(["sh", program], env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return dict(line.removeprefix("export ").split("=", 1) for line in done.stdout.splitlines())


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    return Rack(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", MACHINES)
def test_two_machines_of_a_kind_get_the_nccl_settings_of_an_expert(rack: Rack, name: str) -> None:
    for node in ("g1", "g2"):
        rack.join(node, MACHINES[name])
    for node in ("g1", "g2"):
        told = rack.task(node, "g1", "g2")
        assert told.get("NCCL_IB_HCA") == MACHINES[name].variable
        assert "NCCL_NET" not in told
        assert ("NCCL_IB_DISABLE" in told) is (MACHINES[name].variable is None)


def test_a_machine_rejects_missing_rdma_devices_unless_it_has_no_rdma(rack: Rack) -> None:
    with pytest.raises(
        FabricError, match=r"no RDMA device mlx5_20 here \(mlx5_0, mlx5_1, mlx5_2, .*, mlx5_10, mlx5_11\)"
    ):
        rack.ports(MACHINES["DGX H100"], "mlx5_20")
    assert rack.ports(Machine([], [], []), "mlx5_20") == []


def numbered(*numbers: int) -> Machine:
    """A machine with four rails of InfiniBand under such numbers, each near a GPU of its own."""
    gpus = [behind(0x10 * place, f"{0x10 * place + 3:02x}:00.0") for place in range(1, 5)]
    ports = [
        Port(f"mlx5_{number}", behind(0x10 * place, f"{0x10 * place + 4:02x}:00.0"))
        for place, number in enumerate(numbers, start=1)
    ]
    return Machine(gpus, ports, [f"mlx5_{number}" for number in sorted(numbers)])


def test_machines_that_number_their_devices_differently_are_paired_by_rail(rack: Rack) -> None:
    one, other = numbered(0, 3, 5, 8), numbered(0, 1, 4, 5)
    # Rails that do not meet: each has a switch of its own.
    rack.cables = lambda own, other: bool(own["rail"] == other["rail"])
    rack.join("g1", one)
    assert rack.join("g2", other)["rdma"] == ["mlx5_0:1", "mlx5_1:1", "mlx5_4:1", "mlx5_5:1"]
    assert rack.task("g1", "g1", "g2")["NCCL_IB_HCA"] == one.variable
    assert rack.task("g2", "g1", "g2")["NCCL_IB_HCA"] == other.variable


def test_a_rail_that_is_down_on_one_machine_shifts_no_other(rack: Rack) -> None:
    whole = numbered(0, 3, 5, 8)
    cut = replace(whole, ports=[replace(port, up=port.device != "mlx5_3") for port in whole.ports])
    rack.cables = lambda own, other: bool(own["rail"] == other["rail"])
    rack.join("g1", whole)
    rack.join("g2", cut)
    assert rack.task("g1", "g1", "g2")["NCCL_IB_HCA"] == "=mlx5_0:1,mlx5_5:1,mlx5_8:1"
    rack.join("g3", whole)
    assert rack.asked[-1] == ("g3", "g1"), "with the one that lacks a rail, it could not prove its own"
    assert rack.task("g1", "g1", "g3")["NCCL_IB_HCA"] == whole.variable


def test_infiniband_and_ethernet_are_never_in_one_list(rack: Rack) -> None:
    both = Machine([], [Port("mlx5_0", behind(0x10, "13:00.0")), Port("mlx5_1", behind(0x20, "23:00.0"), ETHERNET)], [])
    only = replace(both, ports=both.ports[1:])
    for node, machine in (("g1", both), ("g2", both), ("g3", only)):
        rack.join(node, machine)
    assert rack.task("g1", "g1", "g2")["NCCL_IB_HCA"] == "=mlx5_0:1"
    assert rack.task("g1", "g1", "g2", "g3")["NCCL_IB_HCA"] == "=mlx5_1:1"
    assert rack.task("g3", "g1", "g2", "g3")["NCCL_IB_HCA"] == "=mlx5_1:1"


def test_two_fabrics_of_infiniband_behind_one_network_are_two(rack: Rack) -> None:
    machine = MACHINES["DGX H100"]
    rack.cables = lambda own, other: bool(own["island"] == other["island"])
    for node in ("a1", "a2", "b1", "b2"):
        rack.join(node, machine, island=node[0])
    assert rack.task("b1", "b1", "b2")["NCCL_IB_HCA"] == machine.variable
    across = rack.task("b1", "a1", "b1")
    assert (across["NCCL_IB_DISABLE"], across["TAILRACK_INTERFACE"]) == ("1", "eth0")


def test_a_rack_without_private_addresses_keeps_its_rdma(rack: Rack) -> None:
    machine = MACHINES["DGX H100"]
    rack.join("g1", machine, interface=None)
    told = rack.join("g2", machine, interface=None)
    assert (told["interfaces"], told["note"], told["error"]) == ([], "", "")
    task = rack.task("g1", "g1", "g2")
    assert task["NCCL_IB_HCA"] == machine.variable
    assert not {"NCCL_NET", "NCCL_IB_DISABLE"} & task.keys()
    assert task["NCCL_SOCKET_IFNAME"] == "=tailscale0"
    assert task["OMPI_MCA_btl_tcp_if_include"] == task["PRTE_MCA_prte_if_include"] == "tailscale0"
    assert task["UCX_NET_DEVICES"].endswith(",mlx5_11:1,tailscale0")
