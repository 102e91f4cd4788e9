"""Phases of the fabric and of ports: a machine's answer, its place on the head node, and which ports jobs never get."""

import json
import subprocess
from collections.abc import Callable
from unittest import mock

import pytest

from components.roles.network.fabric.host import PROGRAM
from components.roles.network.fabric.networks import FabricError
from components.roles.role import Value
from components.steps.composition import JOIN_OF_NODE
from tests.unit.shell import Shell, assert_fails, assert_ok, role_header, script_of

NETWORKS = {"interfaces": [{"name": "eth1", "address": "10.2.0.2/24"}], "rdma": []}
TOLD = {"interfaces": ["eth1"], "rdma": [], "with": [["a1", "eth1"]], "note": "", "error": ""}
NODE: dict[str, Value] = {
    "node_name": "a2", "node_site": "rack", "node_fabric": "auto", "node_networks": json.dumps(NETWORKS),
    "node_rdma": "auto", "node_address": "100.64.0.7", "head_address": "100.64.0.1", "head_computes": True,
}  # fmt: skip


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """The proof itself, which needs other machines."""
    proof = mock.Mock(return_value=TOLD)
    monkeypatch.setattr("components.roles.network.fabric.groups.prove_node", proof)
    return proof


def member(shell: Shell, **values: Value) -> subprocess.CompletedProcess[str]:
    return shell.step(script_of("fabric", "register"), {**NODE, **values}, name="a2-register")


def test_a_fabric_note_passes_and_an_error_fails_with_a_remedy(shell: Shell, prove: mock.Mock) -> None:
    prove.return_value = {**TOLD, "interfaces": [], "note": "a2 stays on the tailnet"}
    assert member(shell).returncode == 0
    error = "eth1 of a2 carried no 1 MiB to a1"
    prove.return_value = {**TOLD, "interfaces": [], "error": error}
    remedy = "or set fabric: auto, tailnet or another interface at site rack"
    assert_fails(member(shell, node_fabric="eth1"), f"step a2-register failed: {error}", remedy)
    prove.side_effect = FabricError("a2 does not answer at 100.64.0.7:6816")
    assert_fails(member(shell), "the fabric of a2 cannot be proven: a2 does not answer at 100.64.0.7:6816")


@pytest.mark.parametrize("computes", [True, False])
def test_a_head_node_proves_its_fabric_only_if_it_runs_jobs(shell: Shell, prove: mock.Mock, computes: bool) -> None:
    assert_ok(shell.step(script_of("fabric", "head"), {**NODE, "head_computes": computes}, name="head-head"))
    assert prove.called is computes
    assert shell.path("/var/lib/tailrack/head-address").read_text() == "100.64.0.1\n", "it may ask itself"
    assert shell.path("/usr/local/sbin/tailrack-fabric-again").exists()


def join(shell: Shell, setting: str, *phases: str) -> subprocess.CompletedProcess[str]:
    shell.stub("tailscale", "echo 100.64.0.7")
    shell.stub("munge")
    shell.write("sys/class/net/eth1/type", "1\n")
    return shell.step(script_of("fabric", *(phases or ("join",))), {**NODE, "node_fabric": setting}, name="a2-prepare")


def test_a_machine_answers_the_head_node_alone_on_the_tailnets_address(shell: Shell) -> None:
    shell.stubs("python3", "ip")
    done = assert_ok(join(shell, "tailnet", *JOIN_OF_NODE))
    assert json.loads(done.stdout)["fabric"] == {"interfaces": [], "rdma": []}
    socket = shell.path("/etc/systemd/system/tailrack-fabric.socket").read_text().splitlines()
    assert [line for line in socket if line.startswith("Listen")] == ["ListenStream=100.64.0.7:6816"]
    assert "TriggerLimitIntervalSec=0" in socket, "who connects often enough would have it closed for good"
    assert "systemctl restart tailrack-fabric.socket" in shell.calls
    assert shell.path("/usr/local/lib/tailrack/task-prolog").stat().st_mode & 0o111
    assert shell.path("/var/lib/tailrack/head-address").read_text() == "100.64.0.1\n"
    service = shell.path("/etc/systemd/system/tailrack-fabric@.service").read_text().splitlines()
    serve = f"ExecStart={PROGRAM} serve a1 /var/lib/tailrack/head-address"
    assert {serve, "CollectMode=inactive-or-failed"} <= {*service}


def test_an_unknown_interface_name_stops_the_join_with_a_remedy(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = mock.Mock(side_effect=FabricError("there is no interface eth9 with an IPv4 address here (eth1)"))
    monkeypatch.setattr("components.roles.network.fabric.host.networks_here", refuse)
    assert_fails(
        join(shell, "eth9"),
        "step a2-prepare failed: there is no interface eth9 with an IPv4 address here (eth1)",
        "next: correct fabric: or rdma: of a1's site: use auto, or names that its nodes have",
    )
    refuse.assert_called_once_with("eth9", "auto")


def test_a_machine_that_leaves_keeps_nothing_that_changes_jobs_of_another_cluster(shell: Shell) -> None:
    join(shell, "tailnet")
    others = shell.write("/etc/enroot/environ.d/10-mine.env", "A=b\n")
    assert_ok(shell.step(script_of("fabric", "leave"), {}))
    assert sorted(path.name for path in shell.path("/etc/enroot").iterdir()) == [others.parent.name]


@pytest.fixture
def again(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the head node's program by its timer, with what the fabric's program tells; return what it did."""
    for name in ("base", "taken"):
        shell.write(f"/var/lib/tailrack/slurm/{name}/topology.conf", "# Written by tailrack.\n")
        shell.write(f"/var/lib/tailrack/slurm/{name}/slurm.conf", "ClusterName=lab\n")
    shell.write("/var/lib/tailrack/slurm/nodes/a2/site", "rack\n")
    shell.write("/var/lib/tailrack/slurm/nodes/a2/fabric", "# fabric a2 1 g eth1 10.2.0.0/24 -\n")
    shell.stub("scontrol", 'if [ "$1" = ping ]; then echo "Slurmctld(primary) at head is UP"; fi')

    def run(**told: list[str]) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr("components.roles.network.fabric.groups.prove_again", lambda: told)
        return shell.command("fabric-again")

    return run


def test_slurm_sends_a_later_proof_to_all(shell: Shell, again: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert_ok(again(proven=["a2"], left=["a3"]))
    assert "# fabric a2 1 g eth1" in shell.path("/etc/slurm/topology.conf").read_text()
    assert "scontrol reconfigure" in shell.calls


def test_the_kernel_reserves_closed_ports_beside_earlier_ones(shell: Shell) -> None:
    ports = shell.path("/proc/sys/net/ipv4/ip_local_reserved_ports")
    for before, others in (("\n", ""), ("8080,9000-9010\n", "8080,9000-9010,")):
        shell.write("proc/sys/net/ipv4/ip_local_reserved_ports", before)
        assert_ok(firewall(shell))
        now = ports.read_text().strip()
        assert now == f"{others}6816,111,2049,20048,6817-6819,60001-60999"
        kept = shell.path("/etc/sysctl.d/90-tailrack.conf").read_text()
        assert kept == f"# Written by tailrack.\nnet.ipv4.ip_local_reserved_ports = {now}\n"


def firewall(shell: Shell, relay: str = "") -> subprocess.CompletedProcess[str]:
    header = {**role_header("firewall"), "node_relay_port": relay, "node_open_ports": ()}
    return shell.step(script_of("firewall", "machine"), header, name="a1-node")


def test_the_relays_port_is_open_on_the_relay_alone_and_is_given_to_no_program(shell: Shell) -> None:
    def rules() -> str:
        return shell.path("/etc/tailrack/firewall.nft").read_text()

    ports = shell.write("proc/sys/net/ipv4/ip_local_reserved_ports", "\n")
    assert firewall(shell).returncode == 0
    assert "accept" not in rules().partition("tailscale0")[2].partition("\n")[2]
    without = rules()
    ports.write_text("\n")
    assert firewall(shell, "60500").returncode == 0  # a port that would be closed otherwise
    lines = [line.strip() for line in rules().splitlines()]
    opened, closed = (
        lines.index("udp dport 60500 accept"),
        [line.startswith("udp dport {") for line in lines].index(True),
    )
    assert opened < closed
    assert ports.read_text().strip().endswith(",60500")
    ports.write_text("\n")
    assert firewall(shell).returncode == 0
    assert rules() == without


def pod(shell: Shell, name: str, number: int, fabric: str = "ens1") -> list[dict[str, str]]:
    """Register a pod, and return the neighbours that it has to reach."""
    networks = {"interfaces": [{"name": "ens1", "address": f"10.65.0.{number}/24"}], "rdma": []}
    own: dict[str, Value] = {"node_name": name, "node_address": f"100.64.0.{number}", "node_fabric": fabric}
    values = {**NODE, **own, "node_networks": json.dumps(networks)}
    done = assert_ok(shell.step(script_of("fabric", "pod_register"), values, name=f"{name}-register"))
    neighbours: list[dict[str, str]] = json.loads(done.stdout)["neighbours"]
    return neighbours


def test_a_pod_hears_of_the_pods_of_its_site_that_joined_before_on_the_same_network(shell: Shell) -> None:
    assert pod(shell, "p1", 2) == []
    assert pod(shell, "p2", 3) == [{"name": "p1", "address": "10.65.0.2", "tailnet": "100.64.0.2"}]
    assert pod(shell, "p3", 4, fabric="ens2") == []
    # Out of the network, nothing of it is left.
    assert pod(shell, "p1", 2, fabric="auto") == []
    assert not shell.path("/var/lib/tailrack/slurm/nodes/p1/fabric.json").exists()
    assert pod(shell, "p2", 3) == []
