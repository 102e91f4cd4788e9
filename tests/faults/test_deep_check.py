"""The deep check: a node that has become slow is drained with both figures, and taken back when it is fast again."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

Cluster = ClusterUnderTest
CHECK = "/usr/local/sbin/tailrack-deep-check"
KEPT = "/var/lib/tailrack/deep-check"
# A tenth of what a node gives by itself, which goes over its own loopback; its packets are as large as 64 KB.
SLOW = "tc qdisc add dev lo root tbf rate 100mbit burst 512kb latency 400ms"
LIMIT = 300


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """One site of a head node that computes, and another node; with the deep check on."""
    made = make_cluster("deep")
    made.config["tailrack:sites"] = [{"name": "cloud-a", "kind": "lab", "pools": [{"name": "a", "count": 1}]}]
    made.config["tailrack:validation"].update(max_bytes="1M", gate_bytes="1M")
    made.config["tailrack:health"] = {"deep_check": {"every_hours": 24, "minutes": 3}}
    made.up_ok()
    # What is checked here is checked by hand: the timer's own run comes ten minutes after the `up`.
    made.run("head", "systemctl is-active tailrack-minute.timer && systemctl stop tailrack-minute.timer")
    return made


@pytest.fixture(autouse=True)
def as_before(cluster: Cluster) -> Iterator[None]:
    """Nothing is slow, no job is left and a1 takes work."""
    yield
    cluster.attempt("a1", "tc qdisc del dev lo root")
    cluster.run("head", "scancel -u ada")
    eventually(lambda: not cluster.run("head", "squeue -h").strip(), 60, "no jobs are left")
    cluster.attempt("head", "scontrol update nodename=a1 state=resume")


def node(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.run("head", "scontrol show node a1 --json"))["nodes"][0]
    return found


def kept(cluster: Cluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cluster.run("head", f"cat {KEPT}/a1.json"))
    return found


def check(cluster: Cluster, name: str = "a1") -> str:
    return cluster.run("head", f"{CHECK} {name}", limit=LIMIT)


def by_the_timer(cluster: Cluster) -> None:
    """What the timer does; what it said is told where it fails."""
    said = "{ journalctl -u tailrack-deep-check -n 40 -o cat --no-pager; false; }"
    cluster.run("head", f"tailrack-minute deep-check || {said}", limit=2 * LIMIT)


def checked_until(cluster: Cluster, done: Callable[[], bool], what: str) -> None:
    """Check it, and once more where others on this machine took its time."""

    def tried() -> bool:
        check(cluster)
        return done()

    eventually(tried, 2 * LIMIT, what)


def drained(cluster: Cluster) -> bool:
    return "DRAIN" in node(cluster)["state"]


def test_nodes_that_are_idle_are_measured_and_nothing_is_held_against_the_first_figure(cluster: Cluster) -> None:
    by_the_timer(cluster)
    assert not drained(cluster)
    assert kept(cluster)["reference"] > 0
    assert kept(cluster)["since"] == "when it was first checked"
    assert cluster.run("head", f"stat -c '%U %a' {KEPT} {KEPT}/a1.json").split() == ["root", "700", "root", "600"]
    said = cluster.run("head", "journalctl -u tailrack-deep-check -o cat --no-pager")
    assert re.search(r"^a1: [0-9.]+ GB/s$", said, re.MULTILINE), said
    # It is this machine's figure: of the address by which the measurement of `up` knows it too.
    for name in ("a1", "head"):
        record = json.loads(cluster.run("head", f"cat {KEPT}/{name}.json"))
        assert record["of"]["address"] == cluster.run(name, "tailscale ip -4").strip()
    # As the user, never as root; and not again before its time.
    jobs = cluster.run("head", "sacct -anX -o user,jobname%40 | grep deep-check")
    assert {line.split()[0] for line in jobs.splitlines()} == {"ada"}
    number = kept(cluster)["due"]
    by_the_timer(cluster)
    assert kept(cluster)["due"] == number


def test_a_node_that_became_slow_is_drained_with_both_figures_until_it_is_fast_again(cluster: Cluster) -> None:
    if cluster.attempt("head", f"grep -q checked {KEPT}/a1.json").returncode != 0:
        check(cluster)
    before = kept(cluster)["reference"]
    cluster.run("a1", SLOW)
    said = check(cluster)
    assert drained(cluster), said
    reason = node(cluster)["reason"]
    figures = re.fullmatch(r"tailrack deep check: ([0-9.]+) GB/s, ([0-9.]+) when it was first checked", reason)
    assert figures, reason
    assert float(figures[1]) < 0.7 * before
    assert float(figures[2]) == pytest.approx(before, rel=0.01)
    nodes = cluster.run("head", "tailrack nodes")
    assert "health, since" in nodes
    assert "next: repair it, then tailrack-deep-check a1" in nodes
    # As slow as before it stays out, and nobody's job was there meanwhile.
    check(cluster)
    assert drained(cluster)
    assert "tailrack-deep-check" not in cluster.run("head", "scontrol show reservation")
    cluster.run("a1", "tc qdisc del dev lo root")
    checked_until(cluster, lambda: not drained(cluster), "taken back")
    assert "tailrack-deep-check" not in cluster.run("head", "scontrol show reservation")
    assert kept(cluster)["reference"] == before
    assert cluster.run_as("ada", "head", "srun -w a1 --immediate=30 hostname", limit=90) == "a1\n"


def test_a_node_with_jobs_and_somebody_elses_drain_are_left_alone(cluster: Cluster) -> None:
    job = cluster.run_as("ada", "head", "sbatch --parsable -w a1 -n1 --output=/dev/null --wrap 'sleep 300'").strip()
    eventually(lambda: job in cluster.run("head", "squeue -h -t R -o %A").split(), 60, "it runs")
    assert "not checked, it is" in check(cluster)
    assert job in cluster.run("head", "squeue -h -t R -o %A").split()
    cluster.run("head", f"scancel {job}")
    eventually(lambda: node(cluster)["state"] == ["IDLE", "DYNAMIC_NORM"], 60, "the job is gone")
    cluster.run("head", "scontrol update nodename=a1 state=drain reason='new disk'")
    assert "not checked, it is drained (new disk)" in " ".join(check(cluster).split())
    assert node(cluster)["reason"] == "new disk"
