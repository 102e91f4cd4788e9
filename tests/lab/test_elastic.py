"""Jobs bring machines: a pool of none, whose machines come when jobs need them and go when they are idle.

The tests share one cluster and run in the order of this file.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cli.pulumi.find_engine import Found
from tests.chance import dice
from tests.lab.cluster import ClusterUnderTest, eventually
from tests.lab.elastic_pool import ElasticPool, flags, is_down, output, submit

NAMES = ("e1", "e2")


@pytest.fixture(scope="module")
def cluster(lone_head: ClusterUnderTest) -> ClusterUnderTest:
    return lone_head


@pytest.fixture(scope="module")
def pool(cluster: ClusterUnderTest, found: Found, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ElasticPool]:
    """Return the pool, up, without machines."""
    made = ElasticPool(cluster, tmp_path_factory.mktemp("e"), found)
    made.deployment().workspace.forget()
    with made.while_up() as up:
        yield up


def awaited(cluster: ClusterUnderTest) -> str:
    """Return a placeholder that powers up; empty if none does."""
    return next((name for name in NAMES if "POWERING_UP" in flags(cluster, name)), "")


@contextmanager
def breaking(pool: ElasticPool, node: str) -> Iterator[None]:
    """Kill a machine whenever it exists."""
    script = f"while sleep 0.2; do docker kill {pool.container(node)}; done"
    process = subprocess.Popen(["bash", "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_a_pool_of_no_machines_has_placeholders_in_slurm(cluster: ClusterUnderTest, pool: ElasticPool) -> None:
    assert pool.rented() == set()
    for name in NAMES:
        assert flags(cluster, name) == "IDLE+CLOUD+POWERED_DOWN"
    topology = cluster.run("head", "scontrol show topology")
    assert "e[1-2]" in topology
    assert "not rented" in cluster.run("head", "tailrack nodes")
    pool.up_ok()
    assert pool.touched() == set()


def test_a_job_brings_a_machine_which_goes_when_it_is_idle(cluster: ClusterUnderTest, pool: ElasticPool) -> None:
    with pool.controller():
        eventually(lambda: "watching" in pool.log(), 60, "the controller runs")
        began = time.time()
        job = submit(cluster, "hostname", "-o", "/shared/home/ada/first")
        eventually(lambda: "renting 1 of 1 at lab site cloud-e, pool te-e" in cluster.why(job), 60, "why says it")
        eventually(lambda: output(cluster, "first") in NAMES, 240, "it ran")
        ended = float(cluster.run("head", "stat -c %Y /shared/home/ada/first"))
        (machine,) = pool.rented()
        started = f"scontrol show node {machine} | sed -n 's/.*SlurmdStartTime=//p'"
        booted = float(cluster.run("head", f"date -d $({started}) +%s"))
        print(f"from sbatch to the first line: {ended - began:.0f} s; to slurmd: {booted - began:.0f} s")
        eventually(lambda: pool.rented() == set(), 300, "the idle machine is returned")
        eventually(lambda: flags(cluster, "e1") == "IDLE+CLOUD+POWERED_DOWN", 60, "its placeholder is free again")


def test_two_jobs_at_once_bring_two_machines_and_a_third_waits_for_the_limit(
    cluster: ClusterUnderTest, pool: ElasticPool
) -> None:
    jobs = [submit(cluster, "hostname; sleep 45", "-o", f"/shared/home/ada/both-{each}") for each in (1, 2)]
    third = submit(cluster, "hostname", "-o", "/shared/home/ada/third")
    with pool.controller():
        eventually(lambda: len(pool.rented()) == 2, 60, "both are rented in one run")
        waits = "waits for its machines: renting 1 of 1"
        eventually(lambda: waits in cluster.run_as("ada", "head", "sll --once"), 60, "sll shows what a job waits for")
        eventually(
            lambda: "Pool te-e rents at most 2 machines at once (tailrack:elastic.max)" in cluster.why(third),
            60,
            "the waiting job names the limit",
        )
        # slurmctld restarts while machines are on their way.
        cluster.run("head", "systemctl restart slurmctld")
        eventually(lambda: {output(cluster, "both-1"), output(cluster, "both-2")} == set(NAMES), 240, "both ran")
        eventually(lambda: output(cluster, "third") in NAMES, 240, "the third ran")
    for job in (*jobs, third):
        assert "Restarts=0" in cluster.run("head", f"scontrol show job {job}")


@pytest.mark.proof
def test_a_machine_that_never_comes_is_given_up_and_the_next_job_takes_another(
    cluster: ClusterUnderTest, pool: ElasticPool
) -> None:
    # Whatever the tests before have left goes first.
    with pool.controller():
        eventually(lambda: pool.rented() == set(), 300, "nothing is rented")
        eventually(lambda: flags(cluster, "e1") == flags(cluster, "e2") == "IDLE+CLOUD+POWERED_DOWN", 60, "both free")
        job = submit(cluster, "hostname", "-o", "/shared/home/ada/never")
        eventually(lambda: bool(awaited(cluster)), 60, "Slurm asks for a machine")
        broken = awaited(cluster)
        with breaking(pool, broken):
            eventually(lambda: is_down(cluster, broken), 200, "the machine is given up")
            reason = cluster.run("head", f"scontrol show node {broken}")
            assert "tailrack: no machine: " in reason, reason
            assert "next attempt after " in reason
            eventually(lambda: broken not in pool.rented(), 120, "nobody pays for it")
        assert "Restarts=1" in cluster.run("head", f"scontrol show job {job}")
        submit(cluster, "hostname", "-o", "/shared/home/ada/second")
        other = next(name for name in NAMES if name != broken)
        eventually(lambda: output(cluster, "second") == other, 240, "another job is not blocked")
        assert "no machine" in cluster.run("head", "tailrack nodes")
        eventually(lambda: not is_down(cluster, broken), 240, "the pause ends, and the node may be asked for")
        eventually(lambda: output(cluster, "never") in NAMES, 300, "the first job runs after all")


@pytest.mark.proof
def test_a_controller_killed_ten_times_leaves_nothing_rented(cluster: ClusterUnderTest, pool: ElasticPool) -> None:
    chance = dice("elastic")
    for turn in range(10):
        job = submit(cluster, "hostname", "-o", f"/shared/home/ada/turn-{turn}")
        with pool.controller() as process:
            time.sleep(chance.uniform(2, 22))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if chance.random() < 0.3:
            cluster.run("head", f"scancel {job}")
        for name in NAMES:
            # So that every turn rents or returns.
            if not set(flags(cluster, name).split("+")) & {
                "POWERED_DOWN",
                "POWERING_DOWN",
                "POWERING_UP",
                "POWER_DOWN",
            }:
                cluster.run("head", f"scontrol update nodename={name} state=power_down_asap")
    with pool.controller():
        eventually(lambda: not cluster.run("head", "squeue -h").strip(), 600, "all jobs have run")
        eventually(lambda: pool.rented() == set(), 400, "nothing is rented")
        eventually(lambda: flags(cluster, "e1") == flags(cluster, "e2") == "IDLE+CLOUD+POWERED_DOWN", 60, "both free")
    names = {made.urn.rpartition("::")[2].partition("-")[0] for made in pool.deployment().made()}
    assert not names & set(NAMES), names
    pool.up_ok()
    assert pool.touched() == set()
