"""What a user of a running cluster sees: nodes, partitions, jobs, the share, names, SSH, outputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.cluster import ClusterUnderTest


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str], ClusterUnderTest]) -> ClusterUnderTest:
    """The dev stack, up."""
    made = make_cluster("t1")
    made.up_ok()
    return made


def test_sinfo_shows_every_node_idle_in_the_partitions_of_its_site(cluster: ClusterUnderTest) -> None:
    lines = cluster.run("head", "sinfo -h -N -o '%N %P %T'").split("\n")
    assert sorted(line for line in lines if line) == [
        "a1 all* idle",
        "a1 cloud-a idle",
        "b1 all* idle",
        "b1 cloud-b idle",
        "head all* idle",
        "head cloud-a idle",
    ]


def test_a_user_runs_a_job_on_nodes_of_both_sites(cluster: ClusterUnderTest) -> None:
    hosts = cluster.run_as("ada", "head", "srun -N3 --switches=2 hostname")
    assert sorted(hosts.split()) == ["a1", "b1", "head"]
