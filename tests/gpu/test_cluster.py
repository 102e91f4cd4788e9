"""All machines as one cluster: its nodes, its measurements, what preflight says of them."""

import json
from typing import Any

import pytest

from tests.gpu.cluster import GpuCluster
from tests.gpu.machines import FABRIC, PLACE


@pytest.fixture(scope="module", autouse=True)
def up(cluster: GpuCluster) -> None:
    """The cluster, measured quickly."""
    cluster.measured()


@pytest.fixture(scope="module")
def scopes(cluster: GpuCluster) -> dict[str, dict[str, Any]]:
    """The results of all scopes, each node by itself among them."""
    outputs = cluster.deployment().outputs()
    (PLACE / "out" / "outputs.json").write_text(json.dumps(outputs, indent=1))
    validation = dict(outputs["validation"])
    nodes = validation.pop("node", {})
    return {**validation, **{f"node {name}": result for name, result in nodes.items()}}


def test_every_machine_is_a_node_that_runs_jobs(cluster: GpuCluster) -> None:
    assert cluster.run("head", "sinfo -h -p all -N -o '%N %T'").splitlines() == ["a idle", "b idle", "c idle"]
    hosts = cluster.run_as("ada", "head", "srun -N3 --switches=2 hostname").split()
    assert sorted(hosts) == ["a", "b", "c"]


def test_an_unchanged_cluster_is_left_alone(cluster: GpuCluster) -> None:
    summary = cluster.up_ok()
    assert cluster.touched() == set(), summary.counts


@pytest.mark.usefixtures("real")
def test_nodes_have_the_gpus_that_are_theirs(cluster: GpuCluster) -> None:
    nodes = cluster.deployment().outputs()["cluster"]["nodes"]
    assert {node["name"]: node["gpus"] for node in nodes} == {
        name: len(machine.gpus) for name, machine in cluster.machines.items()
    }
    kind = cluster.machines["c"].gpus[0].kind
    assert cluster.run("head", "sinfo -h -p all -N -o '%N %G'").splitlines() == [
        f"{name} gpu:{kind}:{len(cluster.machines[name].gpus)}" for name in ("a", "b", "c")
    ]


@pytest.mark.usefixtures("real")
def test_every_scope_passes_on_gpus(cluster: GpuCluster, scopes: dict[str, dict[str, Any]]) -> None:
    several = len(cluster.machines["c"].gpus) > 1
    assert {name: (found["backend"], found["verdict"]) for name, found in scopes.items()} == dict.fromkeys(
        ("rack", "cross-site", *(("box", "node c") if several else ())), ("nccl-tests", "PASS")
    )
    assert not several or scopes["node c"]["ranks"] == len(cluster.machines["c"].gpus)


def test_one_node_uses_its_nvlink(cluster: GpuCluster, scopes: dict[str, dict[str, Any]]) -> None:
    cluster.need(2)
    if "GB/s" not in cluster.run("c", "nvidia-smi nvlink -s"):
        pytest.skip("NVLINK IS NOT TESTED: the GPUs of this machine have none")
    assert (scopes["node c"]["transport"], scopes["node c"]["expected_transport"]) == ("NVLink", "NVLink")


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(("scope", "interface"), [("rack", FABRIC), ("cross-site", "tailscale0")])
def test_nodes_use_sockets_over_the_named_interface(
    scopes: dict[str, dict[str, Any]], scope: str, interface: str
) -> None:
    found = scopes[scope]
    assert (found["transport"], found["interface"]) == ("sockets", interface)
    assert (found["expected_transport"], found["expected_interface"]) == ("sockets", interface)


@pytest.mark.usefixtures("real")
def test_preflight_looks_at_every_node_and_its_real_driver(
    cluster: GpuCluster, scopes: dict[str, dict[str, Any]]
) -> None:
    assert set(scopes["cross-site"]["preflight"]) == {"a", "b", "c"}
    findings = [each for found in scopes["cross-site"]["preflight"].values() for each in found]
    assert [each for each in findings if each["severity"] == "error"] == []
    assert all(each["check"] and each["seen"] and (each["remedy"] or each["severity"] == "info") for each in findings)
    for name in ("a", "b", "c"):
        units = cluster.run(name, "nvidia-smi --query-gpu=uuid --format=csv,noheader").split()
        health = cluster.run_as("ada", name, "cat /run/tailrack/health.json")
        assert len(units) == len(cluster.machines[name].gpus)
        assert all(unit in health for unit in units)


@pytest.mark.usefixtures("real")
def test_preflight_reports_gpus_without_a_monitor(cluster: GpuCluster) -> None:
    cluster.run("a", "systemctl stop tailrack-minute.timer tailrack-health.service; rm /run/tailrack/health.json")
    cluster.measured(nodes=["a", "b"], rerun="nobody looks")
    found = cluster.deployment().outputs()["validation"]["rack"]["preflight"]
    assert any("the GPUs have not been checked" in each["seen"] for each in found["a"])
    assert not any("the GPUs have not been checked" in each["seen"] for each in found["b"])
    # A look now: the timer counts from the end of the last one, which was while it did not run.
    cluster.run("a", "systemctl start tailrack-minute.timer; tailrack-minute health", limit=120)
    assert json.loads(cluster.run("a", "cat /run/tailrack/health.json"))["looks"]
