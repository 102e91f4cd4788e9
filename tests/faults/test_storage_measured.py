"""Storage measured by fio on each node (tailrack:validation.storage). The tests run in this order."""

import io
import subprocess
from typing import Any

import pytest

from cli.output.terminal import Terminal
from cli.report import tables
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

NODES = ("l1", "l2")
FIGURES = ("write_mb_per_s", "read_mb_per_s", "files_per_s", "latency_us", "latency_p99_us")
SMALL = {"size": "8M", "seconds": 2, "checkpoint_size": "16M"}
MEASURED = "/export/shared/home/ada/.tailrack/validation/storage_measurement"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """Two nodes with scratch, and an idle head node."""
    cluster = make_cluster("storage")
    cluster.rent_at_lambda(len(NODES))
    cluster.config["tailrack:scratch"] = {"folder": "/var/lib/scratch"}
    cluster.config["tailrack:validation"]["storage"] = dict(SMALL)
    cluster.up_ok()
    return cluster


def storage(cluster: ClusterUnderTest) -> Any:
    return cluster.deployment().outputs()["storage"]


def assert_nothing_left(cluster: ClusterUnderTest) -> None:
    eventually(lambda: cluster.run("desk", "squeue -h") == "", 60, "no job runs")
    assert cluster.attempt("desk", f"test -e {MEASURED}/data").returncode == 1
    clean = '[ -z "$(ls /var/lib/scratch/tailrack-jobs)" ] && ! pgrep -x fio'
    for node in NODES:
        eventually(lambda node=node: cluster.attempt(node, clean).returncode == 0, 30, f"{node} is clean")  # type: ignore[misc]


def test_nodes_have_figures_of_the_share_and_scratch_and_no_verdict_without_floors(cluster: ClusterUnderTest) -> None:
    result = storage(cluster)
    assert result["verdict"] == "UNJUDGED", result["reason"]
    assert sorted(result["nodes"]) == list(NODES)
    # It begins after the bandwidth measurement has ended.
    assert result["job_id"] > cluster.deployment().outputs()["validation"]["lambda"]["job_id"]
    for node, targets in result["nodes"].items():
        assert sorted(targets) == ["scratch", "share"]
        for target in targets.values():
            assert all(target[figure] > 0 for figure in FIGURES), target
            assert all(len(spread["runs"]) == 3 for spread in target["spread"].values())
        # Each node reads what the other one wrote to the share.
        assert targets["share"]["written_by"] == {"l1": "l2", "l2": "l1"}[node]
        assert targets["scratch"]["written_by"] is None
        assert targets["share"]["path"] == "/shared"
    # Both nodes saved a part of a checkpoint at the same time.
    assert sorted(result["checkpoint"]) == ["scratch", "share"]
    for checkpoint in result["checkpoint"].values():
        assert (checkpoint["ranks"], checkpoint["bytes"]) == (len(NODES), 2**25)
        assert checkpoint["save_seconds"] > 0 < checkpoint["restore_gb_per_s"]
    assert "A checkpoint of 32 MiB by 2 ranks on share was saved in " in result["reason"]
    assert_nothing_left(cluster)


def test_nothing_is_measured_again_without_a_change(cluster: ClusterUnderTest) -> None:
    cluster.up_ok()
    assert cluster.touched() == set()


def test_a_floor_that_is_too_high_fails_names_the_node_and_measures_nothing_again(cluster: ClusterUnderTest) -> None:
    before = storage(cluster)["job_id"]
    cluster.config["tailrack:validation"]["storage"]["floors"] = [
        {"target": "share", "read_mb_per_s": 1e6},
        {"target": "scratch", "write_mb_per_s": 1e-3, "latency_us": 1e9},
    ]
    cluster.up_ok()
    result = storage(cluster)
    assert (result["verdict"], result["job_id"]) == ("FAIL", before)
    for node in NODES:
        assert f"share on {node}: " in result["reason"]
        assert "below the floor of 1,000,000" in result["nodes"][node]["share"]["reason"]
        assert result["nodes"][node]["scratch"]["verdict"] == "PASS"
    terminal = io.StringIO()
    tables.show(Terminal(file=terminal, width=250), cluster.deployment().outputs())
    assert "Storage, a file of 8 MiB by fio" in terminal.getvalue()
    assert "(least 1,000,000)" in terminal.getvalue()


@pytest.mark.parametrize("signal", ["", "--full --signal=KILL"], ids=["cancelled", "killed"])
def test_a_measurement_that_is_cut_off_leaves_nothing_behind(cluster: ClusterUnderTest, signal: str) -> None:
    cluster.config["tailrack:validation"] |= {"rerun": f"cut off {signal}"}
    cluster.config["tailrack:validation"]["storage"] |= {"size": "64M", "seconds": 10}
    with subprocess.Popen(cluster.driver("up"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        try:
            writes = f"test -e {MEASURED}/data/l1"
            eventually(lambda: cluster.attempt("desk", writes).returncode == 0, 60, "l1 writes to the share")
            cluster.run("desk", f"scancel --name=validate-storage {signal}")
            up.communicate(timeout=120)
        except (AssertionError, subprocess.TimeoutExpired):
            up.terminate()
            print(up.communicate()[0])
            raise
    assert up.returncode == 1
    result = storage(cluster)
    assert result["verdict"] in ("FAIL", "INCONCLUSIVE"), result["reason"]
    assert "The job did not complete: state " in result["reason"]
    assert_nothing_left(cluster)
