"""A pool that costs and that nobody uses ends itself; while somebody does, or may, it stays.

The tests share one cluster and run in the order of this file.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT
from tests.lab.cluster import SMALL_MEASUREMENT, ClusterUnderTest, MakeCluster, eventually
from tests.lab.pool_under_test import PoolUnderTest, bring_up_head_alone

LIMIT_MINUTES = 5  # the least that the config takes


class PricedPool(PoolUnderTest):
    """A pool of one node, `r1` at site `rented`, in the lab of a cluster under test."""

    def __init__(self, cluster: ClusterUnderTest, folder: Path, found: Found) -> None:
        config = {
            "tailrack:currency": "EUR",
            "tailrack:idle_limit_minutes": LIMIT_MINUTES,
            "tailrack:sites": [
                {"name": "rented", "kind": "lab", "fabric": "tailnet", "pools": [{"name": "r", "price_per_hour": 36}]}
            ],
            "tailrack:validation": SMALL_MEASUREMENT,
        }
        super().__init__(cluster, "r", folder, found, config)

    def reap(self) -> str:
        """Run `make reap`, which has to end well, and return what it says."""
        done = subprocess.run(self.driver("reap"), cwd=PROJECT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A head node alone, which computes."""
    return bring_up_head_alone(make_cluster("tz"))


@pytest.fixture(scope="module")
def pool(cluster: ClusterUnderTest, found: Found, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PricedPool]:
    """The pool, up."""
    made = PricedPool(cluster, tmp_path_factory.mktemp("r"), found)
    made.deployment().workspace.forget()
    with made.while_up() as up:
        yield up


def costs(cluster: ClusterUnderTest) -> dict[str, Any]:
    """What the head node says that nodes cost, by node."""
    told = json.loads(cluster.run_as("ada", "head", "tailrack costs --json"))
    return {each["name"]: each for each in told["costs"]}


def takes_work(cluster: ClusterUnderTest) -> bool:
    """Whether r1 is not drained."""
    return "DRAIN" not in cluster.run("head", "scontrol show node r1 | grep -o 'State=[^ ]*'")


def test_the_head_node_and_make_status_show_the_cost_of_a_pool(cluster: ClusterUnderTest, pool: PricedPool) -> None:
    assert costs(cluster).keys() == {"r1"}, "the head node has no price"
    eventually(lambda: costs(cluster)["r1"]["idle_seconds"] is not None, 60, "r1 is idle after its measurement")
    r1 = costs(cluster)["r1"]
    assert (r1["price"], r1["currency"], r1["there"]) == (36, "EUR", True)
    assert r1["month"] == pytest.approx(36 * r1["month_hours"], rel=0.01)
    assert 0 <= r1["used_hours"] <= r1["month_hours"]
    done = subprocess.run(pool.driver("status"), cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "36.00 EUR an hour for 1 node." in said
    assert "36.00 EUR an hour now; " in said
    assert "r1 idle for " in said
    assert "Estimates: " in said


def test_a_job_on_it_keeps_it(cluster: ClusterUnderTest, pool: PricedPool) -> None:
    number = cluster.run_as("ada", "head", "sbatch --parsable -p rented -o /dev/null --wrap 'sleep 3600'").strip()
    eventually(lambda: "r1" in cluster.run("head", f"squeue -h -j {number} -t R -o %N"), 60, "the job runs")
    assert f"Keeping stack {pool.stack}: job {number} of ada is on r1." in pool.reap()
    cluster.run("head", f"scontrol suspend {number}")
    assert f"Keeping stack {pool.stack}: job {number} of ada is on r1." in pool.reap()
    assert takes_work(cluster)
    cluster.run("head", f"scontrol resume {number} && scancel {number}")
    eventually(lambda: not cluster.run("head", "squeue -h -w r1").strip(), 60, "the job is gone")


def test_a_job_that_waits_for_it_keeps_it_and_one_that_waits_for_others_does_not(
    cluster: ClusterUnderTest, pool: PricedPool
) -> None:
    later = "--begin=now+3minutes -o /dev/null --wrap true"
    number = cluster.run_as("ada", "head", f"sbatch --parsable -p rented {later}").strip()
    assert f"Keeping stack {pool.stack}: job {number} of ada waits (BeginTime) and could run there." in pool.reap()
    cluster.run("head", f"scancel {number}")
    number = cluster.run_as("ada", "head", f"sbatch --parsable -p cloud-a {later}").strip()
    said = pool.reap()
    cluster.run("head", f"scancel {number}")
    assert f"Keeping stack {pool.stack}: r1 has been idle for 0 min; the limit is {LIMIT_MINUTES} min." in said
    assert takes_work(cluster)


def test_an_unused_pool_is_removed_and_its_cost_stays_recorded(cluster: ClusterUnderTest, pool: PricedPool) -> None:
    said: list[str] = []

    def gone() -> bool:
        said.append(pool.reap())
        return "Destroying stack" in said[-1]

    eventually(gone, 60 * (LIMIT_MINUTES + 4), "the pool is taken away")
    assert f"Destroying stack {pool.stack}: r1 has been idle for at least 6 min; the limit is 5 min." in said[-1]
    assert "is destroyed" in said[-1]
    assert "rented" not in cluster.run("head", "sinfo -h -o %R")
    assert not subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"name={pool.container('r1')}"], capture_output=True, check=True
    ).stdout
    r1 = costs(cluster)["r1"]
    assert not r1["there"]
    assert r1["month"] > 36 * LIMIT_MINUTES / 60
    assert f"Keeping stack {pool.stack}: it has no resources." in pool.reap()
