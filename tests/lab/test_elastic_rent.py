"""Jobs rent machines: an elastic pool at the played cloud (tests/played_cloud). The bill is zero at the end.

The tests share one cluster and one pool, and run in the order of this file.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import lab_commands
from cli.pulumi.find_engine import Found
from tests.chance import dice
from tests.lab.cluster import ClusterUnderTest, eventually
from tests.lab.elastic_pool import ElasticStack, flags, is_down, output, submit
from tests.lab.sealer import sealer_of
from tests.played_cloud.account import Account, Machine
from tests.played_cloud.containers import Containers
from tests.played_cloud.server import WRITE, PlayedCloud, serve

API_KEY = "secret_played_cloud_writes.abc123"
TYPE, PRICE_CENTS = "gpu_1x_played", 129
EAST, WEST = "us-east-1", "us-west-2"
NAMES = ("r1", "r2")
FREE = "IDLE+CLOUD+POWERED_DOWN"


class RentedElasticPool(ElasticStack):
    """An elastic pool of three nodes, of which its limit of prices allows two: `r1` and `r2`."""

    def __init__(self, cluster: ClusterUnderTest, cloud: PlayedCloud, folder: Path, found: Found) -> None:
        config: dict[str, Any] = {
            "tailrack:elastic": {
                "max_price_per_hour": 3, "replace_sick": True, "idle_minutes": 1, "boot_minutes": 15, "cpus": 1,
                "memory_gb": 1,
            },
            "tailrack:sites": [
                {
                    "name": "burst",
                    "kind": "lambda",
                    "region": EAST,
                    "fabric": "tailnet",
                    "user": "admin",
                    "private_key_file": str(lab_commands.STATE_DIR / cluster.lab / "id_ed25519"),
                    "base_url": cloud.url,
                    "boot_minutes": 1,
                    "pools": [{"name": "r", "count": 3, "type": TYPE, "try": [{"region": EAST}, {"region": WEST}]}],
                }
            ],
        }  # fmt: skip
        super().__init__(cluster, "rent", folder, found, config)
        self.deployment().workspace.forget()
        _, sealer = sealer_of(self)
        self.config["tailrack:tailnet"] = {"auth_key": {"secure": sealer.seal("any-key")}}
        self.config["tailrack:api_keys"] = {"lambda": {"secure": sealer.seal(API_KEY)}}


@pytest.fixture(scope="module")
def cluster(lone_head: ClusterUnderTest) -> ClusterUnderTest:
    return lone_head


@pytest.fixture(scope="module")
def cloud(cluster: ClusterUnderTest) -> Iterator[PlayedCloud]:
    """Return the played cloud, whose machines are in the cluster's lab."""
    with Containers(cluster.lab, lab_commands.STATE_DIR, [EAST, WEST]).joined() as machines:
        account = Account(machines, {TYPE: PRICE_CENTS})
        with serve(PlayedCloud(account, {API_KEY: WRITE})) as played:
            yield played


@pytest.fixture(scope="module")
def pool(
    cluster: ClusterUnderTest, cloud: PlayedCloud, found: Found, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RentedElasticPool]:
    """Return the pool, up, without machines."""
    made = RentedElasticPool(cluster, cloud, tmp_path_factory.mktemp("r"), found)
    with made.while_up() as up:
        yield up
    assert cloud.account.bill() == [], "the bill is not zero"
    assert cloud.account.keys == {}


def burst(cluster: ClusterUnderTest, command: str, *options: str) -> str:
    """Submit a job of ada's to the pool; return its number."""
    return submit(cluster, command, *options, partition="burst")


def billed(cloud: PlayedCloud) -> dict[str, str]:
    """Return the ids of the machines that cost money, by node."""
    return {machine.name: machine.id for machine in cloud.account.bill()}


def is_free(cluster: ClusterUnderTest, node: str) -> bool:
    return flags(cluster, node) == FREE


def test_a_job_rents_available_machines_and_the_pool_replaces_a_sick_one(
    cluster: ClusterUnderTest, pool: RentedElasticPool, cloud: PlayedCloud
) -> None:
    assert cloud.account.bill() == []
    assert sorted(pool.deployment().outputs()["elastic"]["places"]) == ["r1", "r2"], "3 USD are two machines"
    cloud.account.capacity = {(TYPE, WEST): 2}
    cloud.account.faults.boot_seconds = 5
    with pool.controller():
        eventually(lambda: "watching" in pool.log(), 60, "the controller runs")
        job = burst(cluster, "hostname; sleep 5", "-w r1", "-o", "/shared/home/ada/first")
        eventually(
            lambda: f"renting 1 of 1 at lambda {EAST} or {WEST}, pool {pool.stack} (r1)" in cluster.why(job),
            60,
            "why says it",
        )
        assert "renting 1 of 1 at lambda" in cluster.run_as("ada", "head", "sll --once")
        eventually(lambda: output(cluster, "first") == "r1", 120, "it runs")
        first = billed(cloud)
        assert list(first) == ["r1"]
        assert [machine.region for machine in cloud.account.bill()] == [WEST]

        # A check drains it while its job runs, and another job waits for it.
        cluster.run("head", "scontrol update nodename=r1 state=drain reason='health: GPU 0 has fallen off the bus'")
        assert cluster.run_as("ada", "head", "srun -p burst -w r1 hostname", 150).strip().endswith("r1")
        assert billed(cloud)["r1"] != first["r1"], "it ran on another machine"
        assert "its machine goes back, because a check drained it: health: GPU 0" in pool.log()
        assert "Restarts=0 " in cluster.run("head", f"scontrol show job {job}"), "no job lost its machine"

        # A machine without a job goes back, here at once.
        cluster.run("head", "scontrol update nodename=r1 state=power_down_asap")
        eventually(lambda: cloud.account.bill() == [], 60, "nothing is rented")
        eventually(lambda: is_free(cluster, "r1"), 60, "its placeholder is free again")


@pytest.mark.proof
def test_without_capacity_or_boot_nothing_is_paid_for_and_an_idle_machine_goes_back(
    cluster: ClusterUnderTest, pool: RentedElasticPool, cloud: PlayedCloud
) -> None:
    cloud.account.capacity = {}
    with pool.controller():
        waiting = burst(cluster, "hostname", "-w r2", "-o", "/shared/home/ada/waiting")
        eventually(lambda: is_down(cluster, "r2"), 60, "without capacity, the machine is given up at once")
        assert f"{TYPE} in {EAST}: no capacity; {TYPE} in {WEST}: no capacity" in cluster.run("head", "tailrack nodes")
        assert "Restarts=1" in cluster.run("head", f"scontrol show job {waiting}")
        cluster.run_as("ada", "head", f"scancel {waiting}")

        cloud.account.capacity = {(TYPE, WEST): 2}
        cloud.account.faults.boot_seconds, cloud.account.faults.never_boots = 0, 1
        cluster.run("head", "tailrack resume r2")
        job = burst(cluster, "hostname", "-w r2", "-o", "/shared/home/ada/never")
        eventually(lambda: list(billed(cloud)) == ["r2"], 60, "it is rented")
        eventually(lambda: is_down(cluster, "r2"), 150, "it is given up")
        assert cloud.account.bill() == []
        reason = cluster.run("head", "scontrol show node r2")
        assert "did not boot within 1 min, so its rent was ended" in reason, reason
        assert "Restarts=1" in cluster.run("head", f"scontrol show job {job}")
        cluster.run_as("ada", "head", f"scancel {job}")
        burst(cluster, "hostname", "-o", "/shared/home/ada/other")
        eventually(lambda: output(cluster, "other") == "r1", 120, "another placeholder serves the next job")
        eventually(lambda: cloud.account.bill() == [], 240, "the idle machine goes back")
        eventually(lambda: is_free(cluster, "r1"), 60, "its placeholder is free again")


# Moments at which a controller is killed.
READ, LAUNCHED, BOOTING, JOINING = "after it read a wish", "in the call that rents", "during the boot", "during up"
RETURNING, ENDED, LEFT = "before the return", "in the call that returns", "after the return"
MOMENTS = (READ, LAUNCHED, LAUNCHED, BOOTING, BOOTING, JOINING, RETURNING, ENDED, ENDED, LEFT)


def kill_at(moment: str, pool: RentedElasticPool, cloud: PlayedCloud, delay: float) -> None:
    """Run a controller, with a job that needs a machine, and kill it at a moment."""
    cluster, launched, log = pool.cluster, threading.Event(), len(pool.log())
    with pool.controller() as process:

        def kill() -> None:
            os.killpg(process.pid, signal.SIGKILL)

        def on_launch(machine: Machine) -> None:
            if moment == LAUNCHED:
                # The machine exists, and the caller gets no answer.
                kill()
            launched.set()

        cloud.account.on_launch = on_launch
        try:
            if moment in (RETURNING, ENDED, LEFT):
                eventually(
                    lambda: any(flags(cluster, name) == "IDLE+CLOUD" for name in NAMES), 120, "one is up and idle"
                )
                returned = terminations(cloud)
                power_down_idle(cluster)
                if moment == RETURNING:
                    eventually(lambda: "returning" in pool.log()[log:], 60, "it wants to return one")
                else:
                    eventually(lambda: terminations(cloud) > returned, 60, "it returns one")
                time.sleep(delay if moment == LEFT else delay / 20)
            elif moment == READ:
                eventually(lambda: "ing r" in pool.log()[log:], 60, "it wants to rent or return")
                time.sleep(delay / 20)
            elif launched.wait(60):
                time.sleep({LAUNCHED: 0, BOOTING: delay / 3, JOINING: 4 + delay}[moment])
        finally:
            if process.poll() is None:
                kill()
            process.wait()
            cloud.account.on_launch = lambda machine: None


def terminations(cloud: PlayedCloud) -> int:
    return sum(call.endswith("/terminate") for call in cloud.asked)


def power_down_idle(cluster: ClusterUnderTest) -> None:
    """Let Slurm suspend the machines that have no job."""
    for name in NAMES:
        if not set(flags(cluster, name).split("+")) & {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN"}:
            cluster.run("head", f"scontrol update nodename={name} state=power_down_asap")


@pytest.mark.proof
@pytest.mark.timeout(1500)
def test_a_controller_killed_at_ten_moments_leaves_nothing_rented(
    cluster: ClusterUnderTest, pool: RentedElasticPool, cloud: PlayedCloud
) -> None:
    chance = dice("elastic-rent")
    cloud.account.capacity = {(TYPE, WEST): 2}
    cloud.account.faults.boot_seconds = 4
    moments = list(MOMENTS)
    chance.shuffle(moments)
    for turn, moment in enumerate(moments):
        if moment in (READ, LAUNCHED, BOOTING, JOINING) and not any(is_free(cluster, name) for name in NAMES):
            # So that this turn rents.
            with pool.controller():
                eventually(lambda: not cluster.run("head", "squeue -h").strip(), 300, "all jobs have run")
                power_down_idle(cluster)
                eventually(lambda: cloud.account.bill() == [], 120, "nothing is rented")
        print(f"turn {turn}: {moment}", flush=True)
        job = burst(cluster, "hostname", "-o", f"/shared/home/ada/turn-{turn}")
        kill_at(moment, pool, cloud, chance.uniform(0, 10))
        print(f"turn {turn}: {sorted(billed(cloud))} rented", flush=True)
        if chance.random() < 0.3:
            cluster.run("head", f"scancel {job}")
        power_down_idle(cluster)
    with pool.controller():
        eventually(lambda: not cluster.run("head", "squeue -h").strip(), 600, "all jobs have run")
        power_down_idle(cluster)
        eventually(lambda: cloud.account.bill() == [], 300, "nothing is rented")
        eventually(lambda: is_free(cluster, "r1") and is_free(cluster, "r2"), 60, "both placeholders are free")
    names = {made.urn.rpartition("::")[2].partition("-")[0] for made in pool.deployment().made()}
    assert not names & set(NAMES), names
    pool.up_ok()
    assert pool.touched() == set()
