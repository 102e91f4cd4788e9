"""Pools that join a running cluster and leave it: two at once, with a machine that is gone, without the cluster.

The tests share one cluster and run in the order of this file.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT
from tests.lab.cluster import SMALL_MEASUREMENT, ClusterUnderTest, MakeCluster, dev_config, eventually
from tests.lab.pool_under_test import PoolUnderTest


def pool_of(letter: str, cluster: ClusterUnderTest, folder: Path, found: Found) -> PoolUnderTest:
    """A pool of one node, `<letter>1` at site `cloud-<letter>`, in the lab of a cluster under test."""
    site = {"name": f"cloud-{letter}", "kind": "lab", "fabric": "tailnet", "pools": [{"name": letter}]}
    spot = {"forget_after_minutes": 5}
    config = {"tailrack:sites": [site], "tailrack:spot": spot, "tailrack:validation": SMALL_MEASUREMENT}
    return PoolUnderTest(cluster, letter, folder, found, config)


def run_all(commands: Sequence[Sequence[str]]) -> list[str]:
    """Run commands side by side; return what each said; fail with all that one says which fails."""
    running = [
        subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for words in commands
    ]
    said = [process.communicate()[0] for process in running]
    for process, text in zip(running, said, strict=True):
        assert process.returncode == 0, text
    return said


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A head node that computes and a1, with a job of ada's on a1 that goes on for hours."""
    made = make_cluster("tp")
    made.config = dev_config()
    made.config["tailrack:sites"] = made.config["tailrack:sites"][:1]
    made.up_ok()
    made.run_as("ada", "head", "sbatch -w a1 -o /dev/null --wrap 'sleep 36000'")
    eventually(lambda: job_state(made) == "RUNNING", 60, "ada's job runs")
    return made


@pytest.fixture(scope="module")
def pools(
    cluster: ClusterUnderTest, found: Found, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, PoolUnderTest]]:
    """Two pools, brought up at the same time."""
    made = {letter: pool_of(letter, cluster, tmp_path_factory.mktemp(letter), found) for letter in "cd"}
    for pool in made.values():
        pool.deployment().workspace.forget()
    try:
        run_all([pool.driver("up") for pool in made.values()])
        yield made
    finally:
        for pool in made.values():
            pool.remove()


def job_state(cluster: ClusterUnderTest) -> str:
    """The state of the only job that is there all the time, and how often it was begun."""
    return cluster.run("head", "squeue -h -u ada -o %T -w a1").strip()


def restarts(cluster: ClusterUnderTest) -> str:
    """How often ada's job was requeued."""
    return cluster.run("head", "scontrol show job $(squeue -h -u ada -o %A -w a1) | grep -o 'Restarts=[0-9]*'").strip()


def partitions(cluster: ClusterUnderTest) -> dict[str, str]:
    """Partitions, each with its nodes."""
    lines = cluster.run("head", "sinfo -h -o '%R %N'").splitlines()
    return {line.partition(" ")[0]: line.partition(" ")[2] for line in lines}


def assert_unharmed(cluster: ClusterUnderTest) -> None:
    """The cluster's own stack finds nothing to change, and ada's job goes on as it began."""
    cluster.up_ok()
    assert cluster.touched() == set()
    assert (job_state(cluster), restarts(cluster)) == ("RUNNING", "Restarts=0")


def test_two_pools_join_side_by_side_and_the_cluster_stays_as_it_is(
    cluster: ClusterUnderTest, pools: dict[str, PoolUnderTest]
) -> None:
    there = partitions(cluster)
    assert (there["cloud-c"], there["cloud-d"]) == ("c1", "d1")
    for letter in pools:
        said = cluster.run_as("ada", "head", f"srun -p cloud-{letter} hostname && touch /shared/home/ada/{letter}")
        assert said.split() == [f"{letter}1"]
    assert_unharmed(cluster)


def test_a_pool_measures_the_way_to_the_head_node(pools: dict[str, PoolUnderTest]) -> None:
    outputs = pools["c"].deployment().outputs()
    assert outputs["validation"].keys() == {"cross-site"}
    assert sorted(outputs["validation"]["cross-site"]["nodes"]) == ["c1", "head"]
    assert outputs["busbw_gb_per_s"] > 0
    assert [node["name"] for node in outputs["cluster"]["nodes"]] == ["c1"]


def test_an_unchanged_pool_changes_nothing(pools: dict[str, PoolUnderTest]) -> None:
    pools["c"].up_ok()
    assert pools["c"].touched() == set()


def test_a_pool_follows_a_new_ssh_authority_of_its_cluster_without_an_up(
    cluster: ClusterUnderTest, pools: dict[str, PoolUnderTest]
) -> None:
    trusted = "/etc/ssh/tailrack_authority.pub"
    before = cluster.run("head", f"cat {trusted}")
    cluster.config["tailrack:cluster"]["ssh_generation"] = "2"
    cluster.up_ok()
    assert cluster.touched() == {"head-services"}
    after = cluster.run("head", f"cat {trusted}")
    assert before.splitlines()[1:] != after.splitlines()[1:]
    assert cluster.run("a1", f"cat {trusted}") == after
    for letter, pool in pools.items():
        assert pool.run(f"{letter}1", f"cat {trusted}") == after
    pools["c"].up_ok()
    assert pools["c"].touched() == set()
    assert_unharmed(cluster)


def test_a_name_that_another_pool_has_is_refused_by_the_head_node_before_a_machine_is_touched(
    cluster: ClusterUnderTest, pools: dict[str, PoolUnderTest], found: Found, tmp_path: Path
) -> None:
    third = pool_of("e", cluster, tmp_path, found)
    # Which the outputs of the cluster's stack do not tell.
    third.config["tailrack:sites"][0]["pools"] = [{"name": "x", "count": 1}]
    owner = "organization.tailrack.other"
    cluster.run("head", f"mkdir -p /var/lib/tailrack/slurm/pools/{owner} && cd /var/lib/tailrack/slurm/pools/{owner}"
                        " && echo x1 >nodes && echo >slurm.conf")  # fmt: skip
    try:
        summary = third.up()
        (failure,) = summary.failures
        assert "the cluster already has a node x1, in the pool organization.tailrack.other" in failure.message
        assert not [event for event in third.events if event.name == "x1-prepare" and event.kind == "done"]
    finally:
        cluster.run("head", f"rm -r /var/lib/tailrack/slurm/pools/{owner}")
        third.remove()


def test_a_pool_without_its_machine_is_removed_and_nothing_else_changes(
    cluster: ClusterUnderTest, pools: dict[str, PoolUnderTest]
) -> None:
    pool = pools["c"]
    subprocess.run(["docker", "rm", "-f", pool.container("c1")], check=True, capture_output=True)
    (said,) = run_all([pool.driver("down")])
    assert "Stack tp-c is destroyed." in said
    assert "cloud-c" not in partitions(cluster)
    left = "ls /etc/exports.d /var/lib/tailrack/members /var/lib/tailrack/slurm/nodes /var/lib/tailrack/slurm/pools"
    assert "c1" not in cluster.run("head", left)
    assert partitions(cluster)["cloud-d"] == "d1"
    assert cluster.run_as("ada", "head", "srun -p cloud-d hostname").strip() == "d1"
    assert_unharmed(cluster)


@pytest.mark.proof
def test_a_machine_that_was_taken_back_is_forgotten_by_the_head_node_itself(
    cluster: ClusterUnderTest, pools: dict[str, PoolUnderTest]
) -> None:
    cluster.run("head", "systemctl is-active tailrack-minute.timer")
    subprocess.run(["docker", "rm", "-f", pools["d"].container("d1")], check=True, capture_output=True)
    # As slurmctld does it by itself when SlurmdTimeout is over. Said again each time: an answer that d1 has still given
    # to slurmctld's last ping takes the word back, and the next ping comes a third of SlurmdTimeout later.
    down = "scontrol update nodename=d1 state=down reason='Not responding'"
    silent = "/var/lib/tailrack/slurm/silent/d1"
    eventually(
        lambda: cluster.attempt("head", f"{down}; tailrack-minute expire && test -e {silent}").returncode == 0,
        150,
        "the head node sees that d1 is silent",
    )
    # A look that the timer has begun before is waited for by `tailrack-minute`, and takes no notice of the date.
    later = f"[ ! -e {silent} ] || touch -d '6 minutes ago' {silent}; tailrack-minute expire"
    kept = "ls /etc/exports.d /var/lib/tailrack/members /var/lib/tailrack/slurm/nodes; sinfo -h -N"
    eventually(
        lambda: (cluster.attempt("head", later).returncode, "d1" in cluster.run("head", kept)) == (0, False),
        60,
        "nothing of d1 is left on the head node",
    )
    assert_unharmed(cluster)


def test_a_cluster_that_has_pools_is_not_taken_down(cluster: ClusterUnderTest, pools: dict[str, PoolUnderTest]) -> None:
    done = subprocess.run(cluster.driver("down"), cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "run 'make down STACK=tp-d' first" in " ".join(done.stderr.split())
    assert job_state(cluster) == "RUNNING"


def test_a_pool_without_its_cluster_is_removed_and_names_the_remaining_work(
    cluster: ClusterUnderTest, pools: dict[str, PoolUnderTest]
) -> None:
    # As the raw CLI does it, which looks for no pools.
    assert cluster.deployment().destroy().ok
    (said,) = run_all([pools["d"].driver("down")])
    assert "stack tp does not exist" in " ".join(said.split())
    assert "d1-register" in said
    assert "Stack tp-d is destroyed." in said
