"""Machines that a stack rents from the played cloud (lab/played_cloud), uses and returns; the bill is zero at the end.

The tests share one cluster and one played cloud, and run in the order of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import lab_commands
from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT
from lab.identity import lab_id
from lab.played_cloud.account import Account
from lab.played_cloud.containers import Containers
from lab.played_cloud.server import READ, WRITE, PlayedCloud, serve
from tests.lab.cluster import SMALL_MEASUREMENT, ClusterUnderTest, dev_config
from tests.lab.sealer import sealer_of

API_KEY, READ_ONLY_KEY = "secret_played_cloud_writes.abc123", "secret_played_cloud_reads.abc123"
TYPE, PRICE_CENTS = "gpu_1x_played", 129
EAST, WEST = "us-east-1", "us-west-2"


class RentedPool(ClusterUnderTest):
    """A pool whose machines are rented, in the lab of a cluster under test."""

    def __init__(self, cluster: ClusterUnderTest, cloud: PlayedCloud, folder: Path, found: Found) -> None:
        key = lab_commands.STATE_DIR / cluster.lab / "id_ed25519"
        config: dict[str, Any] = {
            "tailrack:kind": "pool",
            "tailrack:cluster": cluster.stack,
            "tailrack:sites": [
                {
                    "name": "burst",
                    "kind": "lambda",
                    "region": EAST,
                    "fabric": "tailnet",
                    "user": "admin",
                    "private_key_file": str(key),
                    "base_url": cloud.url,
                    "pools": [{"name": "r", "count": 2, "type": TYPE}],
                }
            ],
            "tailrack:spot": {"forget_after_minutes": 5},
            "tailrack:validation": SMALL_MEASUREMENT,
        }
        super().__init__(f"{cluster.stack}-rented", folder, found, config)
        self.cluster = cluster
        self.deployment().workspace.forget()
        _, self._sealer = sealer_of(self)
        self.config["tailrack:tailnet"] = {"auth_key": {"secure": self._sealer.seal("any-key")}}
        self.use_key(API_KEY)

    def use_key(self, api_key: str) -> None:
        """Write another API key into the config."""
        self.config["tailrack:api_keys"] = {"lambda": {"secure": self._sealer.seal(api_key)}}

    @property
    def lab(self) -> str:
        """The id of the cluster's lab."""
        return lab_id(PROJECT, self.cluster.stack)

    @property
    def site(self) -> dict[str, Any]:
        """The only site in the config."""
        site: dict[str, Any] = self.config["tailrack:sites"][0]
        return site

    def remove(self) -> None:
        """Destroy the pool; its lab is the cluster's."""
        deployment = self.deployment()
        deployment.destroy()
        deployment.workspace.forget()


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str], ClusterUnderTest]) -> ClusterUnderTest:
    """A head node that computes, alone."""
    made = make_cluster("rent")
    made.config = dev_config()
    made.config["tailrack:sites"] = made.config["tailrack:sites"][:1]
    made.config["tailrack:sites"][0]["pools"] = []
    made.config["tailrack:validation"]["floors_gb_per_s"] = {}
    made.up_ok()
    return made


@pytest.fixture(scope="module")
def cloud(cluster: ClusterUnderTest) -> Iterator[PlayedCloud]:
    """The played cloud, whose machines are in the cluster's lab."""
    machines = Containers(cluster.lab, lab_commands.STATE_DIR, [EAST, WEST])
    machines.open()
    account = Account(machines, {TYPE: PRICE_CENTS})
    with serve(PlayedCloud(account, {API_KEY: WRITE, READ_ONLY_KEY: READ})) as played:
        yield played
        account.close()
    machines.close()


@pytest.fixture
def pool(cluster: ClusterUnderTest, cloud: PlayedCloud, tmp_path: Path, found: Found) -> Iterator[RentedPool]:
    """A pool that is not up; at its end, nothing is rented."""
    cloud.account.capacity = {(TYPE, EAST): 4, (TYPE, WEST): 4}
    made = RentedPool(cluster, cloud, tmp_path, found)
    try:
        yield made
    finally:
        made.remove()
    assert cloud.account.bill() == [], "the bill is not zero"
    assert cloud.account.keys == {}


def test_two_machines_are_rented_measured_and_returned(pool: RentedPool, cloud: PlayedCloud) -> None:
    pool.up_ok()
    outputs = pool.deployment().outputs()
    assert [node["name"] for node in outputs["cluster"]["nodes"]] == ["r1", "r2"]
    assert [node["price_per_hour"] for node in outputs["cluster"]["nodes"]] == [1.29, 1.29]
    assert {facts["region"] for facts in outputs["rented"].values()} == {EAST}
    assert sorted(outputs["validation"]["burst"]["nodes"]) == ["r1", "r2"]
    assert len(cloud.account.bill()) == 2
    ran = pool.cluster.run_as("ada", "head", "srun -p burst -N 2 hostname")
    assert len(set(ran.split())) == 2

    pool.up_ok()
    assert pool.touched() == set()

    assert pool.deployment().destroy().ok
    assert cloud.account.bill() == []
