"""Machines that a stack rents from the played cloud, uses and returns; the bill is zero at the end.

The tests share one cluster and one played cloud, and run in the order of this file.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import lab_commands
from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT
from tests.lab.cluster import SMALL_MEASUREMENT, ClusterUnderTest, eventually
from tests.lab.pool_under_test import PoolUnderTest
from tests.lab.sealer import sealer_of
from tests.played_cloud.account import Account
from tests.played_cloud.containers import Containers
from tests.played_cloud.server import READ, WRITE, PlayedCloud, serve

API_KEY, READ_ONLY_KEY = "secret_played_cloud_writes.abc123", "secret_played_cloud_reads.abc123"
TYPE, PRICE_CENTS = "gpu_1x_played", 129
EAST, WEST = "us-east-1", "us-west-2"


class RentedPool(PoolUnderTest):
    """A pool whose machines are rented, in the lab of a cluster under test."""

    def __init__(
        self, cluster: ClusterUnderTest, cloud: PlayedCloud, folder: Path, found: Found, kind: str = "lambda"
    ) -> None:
        key = lab_commands.STATE_DIR / cluster.lab / "id_ed25519"
        config: dict[str, Any] = {
            "tailrack:sites": [
                {
                    "name": "burst",
                    "kind": kind,
                    "region": EAST,
                    "fabric": "tailnet",
                    "user": "admin",
                    "private_key_file": str(key),
                    "base_url": cloud.url_of(kind),
                    "pools": [{"name": "r", "count": 2, "type": TYPE}],
                }
            ],
            "tailrack:spot": {"forget_after_minutes": 5},
            "tailrack:validation": SMALL_MEASUREMENT,
        }
        super().__init__(cluster, "rented", folder, found, config)
        self.deployment().workspace.forget()
        _, self._sealer = sealer_of(self)
        self.config["tailrack:tailnet"] = {"auth_key": {"secure": self._sealer.seal("any-key")}}
        self.use_key(API_KEY)

    def use_key(self, api_key: str) -> None:
        """Write another API key into the config."""
        self.config["tailrack:api_keys"] = {self.site["kind"]: {"secure": self._sealer.seal(api_key)}}

    @property
    def site(self) -> dict[str, Any]:
        """The only site in the config."""
        site: dict[str, Any] = self.config["tailrack:sites"][0]
        return site


@pytest.fixture(scope="module")
def cluster(lone_head: ClusterUnderTest) -> ClusterUnderTest:
    return lone_head


@pytest.fixture(scope="module")
def cloud(cluster: ClusterUnderTest) -> Iterator[PlayedCloud]:
    """The played cloud, whose machines are in the cluster's lab."""
    with Containers(cluster.lab, lab_commands.STATE_DIR, [EAST, WEST]).joined() as machines:
        account = Account(machines, {TYPE: PRICE_CENTS})
        with serve(PlayedCloud(account, {API_KEY: WRITE, READ_ONLY_KEY: READ})) as played:
            yield played


@pytest.fixture
def kind() -> str:
    """The kind of the pool's site; a test can have another one by its parameters."""
    return "lambda"


@pytest.fixture
def pool(
    cluster: ClusterUnderTest, cloud: PlayedCloud, tmp_path: Path, found: Found, kind: str
) -> Iterator[RentedPool]:
    """A pool that is not up; at its end, nothing is rented."""
    cloud.account.capacity = {(TYPE, EAST): 4, (TYPE, WEST): 4}
    made = RentedPool(cluster, cloud, tmp_path, found, kind)
    try:
        yield made
    finally:
        made.remove()
    assert cloud.account.bill() == [], "the bill is not zero"
    assert cloud.account.keys == {}


def test_two_machines_are_rented_measured_and_returned(pool: RentedPool, cloud: PlayedCloud) -> None:
    pool.site["pools"][0]["try"] = [{"region": EAST}, {"region": WEST}]
    cloud.account.capacity = {(TYPE, EAST): 1, (TYPE, WEST): 2}
    cloud.account.faults.boots_twice = 1
    pool.up_ok()
    outputs = pool.deployment().outputs()
    assert [node["name"] for node in outputs["cluster"]["nodes"]] == ["r1", "r2"]
    assert [node["price_per_hour"] for node in outputs["cluster"]["nodes"]] == [1.29, 1.29]
    rented = outputs["rented"]
    assert {facts["region"] for facts in rented.values()} == {EAST, WEST}
    # Also with the cloud's answer, where both nodes asked before one of them had the machine.
    tried = [[place.partition(" (")[0] for place in facts["tried"]] for facts in rented.values()]
    assert [f"{TYPE} in {EAST}: no capacity"] in tried
    assert sorted(outputs["validation"]["burst"]["nodes"]) == ["r1", "r2"]
    assert len(cloud.account.bill()) == 2
    ran = pool.cluster.run_as("ada", "head", "srun -p burst -N 2 hostname")
    assert sorted(ran.split()) == ["r1", "r2"]

    pool.up_ok()
    assert pool.touched() == set()

    cloud.account.end(rented["r2"]["id"], taken_back=True)
    preview = pool.deployment().preview()
    assert preview.counts["update"] >= 1
    assert any(f"r2: its machine {rented['r2']['id']} is no longer at Lambda" in event.text for event in pool.events)
    cloud.account.capacity = {}
    for _ in range(2):  # a second run must not take the lost machine for present
        # The CLI also reports a step that needs the machine.
        (failure,) = (failure for failure in pool.up().failures if failure.command)
        assert f"no machine for r2 at Lambda: {TYPE} in {EAST}: no capacity" in failure.message
    cloud.account.capacity = {(TYPE, WEST): 1}
    pool.up_ok()
    assert pool.deployment().outputs()["rented"]["r2"]["id"] != rented["r2"]["id"]
    eventually(lambda: "idle" in pool.cluster.run("head", "sinfo -h -n r2 -o %T"), 60, "r2 is back")
    assert pool.cluster.run_as("ada", "head", "srun -w r2 hostname").split() == ["r2"]

    assert pool.deployment().destroy().ok
    assert cloud.account.bill() == []


@pytest.mark.parametrize("kind", ["digitalocean"])
def test_a_site_that_may_have_fewer_uses_the_droplet_that_it_gets_and_has_all_later(
    pool: RentedPool, cloud: PlayedCloud
) -> None:
    pool.site["fewer"] = "warn"
    preview = pool.deployment().preview()
    assert preview.ok
    price = f"DigitalOcean has {TYPE} in {EAST} now for r1, r2: 1.29 USD an hour each"
    assert any(price in event.text for event in pool.events)
    # Both are promised, and one is gone when it is launched.
    cloud.account.capacity = {(TYPE, EAST): 2}
    cloud.account.on_launch = lambda machine: cloud.account.capacity.update({(TYPE, EAST): 0})
    pool.up_ok()
    cloud.account.on_launch = lambda machine: None
    (warning,) = [event.text for event in pool.events if "is left out" in event.text]
    outputs = pool.deployment().outputs()
    (got,) = outputs["rented"]
    (missing,) = {"r1", "r2"} - {got}
    assert f"no machine for {missing} at DigitalOcean: {TYPE} in {EAST}: no capacity" in warning
    assert (outputs["rented"][got]["type"], outputs["rented"][got]["price_per_hour"]) == (TYPE, 1.29)
    assert [node["name"] for node in outputs["cluster"]["nodes"]] == [got]
    assert got in {node for scope in outputs["validation"].values() for node in scope["nodes"]}
    assert len(cloud.account.bill()) == 1
    assert pool.cluster.run_as("ada", "head", "srun -p burst hostname").split() == [got]

    cloud.account.capacity = {(TYPE, EAST): 1}
    pool.up_ok()
    ran = pool.cluster.run_as("ada", "head", "srun -p burst -N 2 hostname")
    assert sorted(ran.split()) == ["r1", "r2"]

    assert pool.deployment().destroy().ok
    assert cloud.account.bill() == []


def test_a_wrong_key_rents_nothing_and_a_strange_host_key_gets_no_secret(pool: RentedPool, cloud: PlayedCloud) -> None:
    pool.site["pools"][0]["count"] = 1
    launched = cloud.account.launched
    for key in ("wrong", READ_ONLY_KEY):
        pool.use_key(key)
        summary = pool.up()
        assert "does not accept the API key" in summary.failures[0].message
        assert "pulumi config set --path --secret tailrack:api_keys.lambda" in summary.failures[0].message
    assert cloud.account.launched == launched

    pool.use_key(API_KEY)
    cloud.account.faults.other_host_key = 1
    summary = pool.up()
    # The CLI also reports the run as a whole.
    (failure,) = (failure for failure in summary.failures if failure.urn.endswith("::r1-host-key"))
    assert "End this machine in the cloud's console" in failure.message
    (machine,) = cloud.account.bill()
    # The CLI keeps no outputs of a run that fails as a whole.
    rented = pool.deployment().outputs().get("rented", {"r1": {"id": machine.id}})
    assert rented["r1"]["id"] == machine.id


def test_a_killed_up_leaves_nothing_rented_after_a_down(pool: RentedPool, cloud: PlayedCloud) -> None:
    cloud.account.faults.boot_seconds = 30
    launched = threading.Event()
    cloud.account.on_launch = lambda machine: launched.set()
    run = subprocess.Popen(pool.driver("up"), cwd=PROJECT, start_new_session=True, stdout=subprocess.DEVNULL)
    assert launched.wait(120)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    cloud.account.faults.boot_seconds = 0
    cloud.account.on_launch = lambda machine: None
    assert len(cloud.account.bill()) >= 1
    subprocess.run(pool.driver("down"), cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    assert cloud.account.bill() == []
