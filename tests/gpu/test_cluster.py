"""All machines as one cluster."""

from __future__ import annotations

import pytest

from tests.gpu.cluster import GpuCluster
from tests.lab.cluster import SMALL_MEASUREMENT


@pytest.fixture(scope="module", autouse=True)
def everything(cluster: GpuCluster) -> None:
    """All nodes are in the cluster, measured quickly."""
    cluster.has("a", "b", "c", **SMALL_MEASUREMENT)


def test_every_machine_is_a_node_that_runs_jobs(cluster: GpuCluster) -> None:
    assert sorted(cluster.run("head", "sinfo -h -p all -N -o '%N %T'").split("\n")[:-1]) == [
        "a idle",
        "b idle",
        "c idle",
    ]
    hosts = cluster.run_as("ada", "head", "srun -N3 --switches=2 hostname").split()
    assert sorted(hosts) == ["a", "b", "c"]


def test_an_unchanged_cluster_is_left_alone(cluster: GpuCluster) -> None:
    summary = cluster.up_ok()
    assert cluster.touched() == set(), summary.counts
