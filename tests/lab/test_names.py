"""Names on machines as they are rented or stand about: other host names, cloud-init, with and without resolved.

The tests share three machines and run in the order of this file: two in the cluster, a third joins, restarts, leaves.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually, own_machine

NODES = ("head", "s1", "late")


@pytest.fixture(scope="module")
def machines(make_cluster: Callable[[str], ClusterUnderTest]) -> ClusterUnderTest:
    """A stack of a cloud machine and a server, nothing set up yet; the cloud machine `late` is there, and not in it."""
    made = make_cluster("n1")
    head = own_machine(made.lab, "head", like="cloud")
    server = own_machine(made.lab, "s1", like="server")
    own_machine(made.lab, "late", like="cloud")
    made.config["tailrack:head"] = {"name": "head", "site": "rack", "compute": True}
    made.config["tailrack:sites"] = [{"name": "rack", "kind": "hosts", "hosts": [head, server]}]
    made.config["tailrack:tailnet"]["control_url"] = "http://control.lab:8080"
    made.config["tailrack:validation"]["floors_gb_per_s"] = {}
    # The server's carol has the uid that the dev stack gives to ada.
    for user in made.config["tailrack:users"]:
        user["uid"] += 100
    # What the server does for another cluster is not what is tried here.
    made.run("s1", "systemctl disable --now munge; rm -rf /etc/munge/munge.key /etc/slurm/slurm.conf /etc/exports")
    for node in ("head", "late"):
        eventually(lambda: rested(made, node), 90, f"{node}'s first start is over, and apt is free")  # noqa: B023
    return made


@pytest.fixture(scope="module")
def cluster(machines: ClusterUnderTest) -> ClusterUnderTest:
    """The head node and the server as a cluster."""
    machines.up_ok()
    return machines


@pytest.fixture(scope="module")
def three(cluster: ClusterUnderTest) -> ClusterUnderTest:
    """The cluster with the third machine in it, which nobody expected when the others joined."""
    cluster.config["tailrack:sites"][0]["hosts"].append(own_machine(cluster.lab, "late", like="cloud"))
    cluster.up_ok()
    return cluster


def rested(cluster: ClusterUnderTest, node: str) -> bool:
    """Whether cloud-init and the day's first `apt-get update` of a machine are done."""
    cloud = cluster.attempt(node, "cloud-init status").stdout.strip() == "status: done"
    return cloud and cluster.attempt(node, "systemctl is-active apt-daily.timer apt-daily.service").stdout.split() == [
        "active",
        "inactive",
    ]


def addresses(cluster: ClusterUnderTest) -> dict[str, str]:
    """Return the tailnet address of each node of the cluster by its name."""
    return {node["name"]: node["tailnet_ip"] for node in cluster.deployment().outputs()["cluster"]["nodes"]}


def known_names(cluster: ClusterUnderTest, node: str) -> dict[str, list[str]]:
    """Return all addresses that a node finds for each name of the cluster, in the order in which they are tried."""
    found = {}
    for name in NODES:
        lines = cluster.attempt(node, f"getent ahostsv4 {name}").stdout.splitlines()
        found[name] = list(dict.fromkeys(line.split()[0] for line in lines))
    return found


def knows_all(cluster: ClusterUnderTest, node: str) -> bool:
    """Whether every name of the cluster means its tailnet address on a node, and nothing else."""
    return known_names(cluster, node) == {name: [address] for name, address in addresses(cluster).items()}


def restart(cluster: ClusterUnderTest, node: str) -> None:
    """Restart a machine and wait until cloud-init has written its /etc/hosts anew."""
    cluster.run(node, "echo 192.0.2.1 written-by-hand >>/etc/hosts")
    subprocess.run(["docker", "restart", cluster.container(node)], check=True, capture_output=True)
    eventually(lambda: cluster.attempt(node, "grep written-by-hand /etc/hosts").returncode == 1, 60, "a new /etc/hosts")


def old_name(cluster: ClusterUnderTest, node: str) -> str:
    """Return what a cloud machine was called when it was handed over."""
    return cluster.run(node, "cloud-init query local_hostname").strip()


def test_slurm_works_on_machines_that_were_called_otherwise(cluster: ClusterUnderTest) -> None:
    assert old_name(cluster, "head").startswith("ip-")
    assert [cluster.run(node, "hostname; cat /etc/hostname").split() for node in ("head", "s1")] == [
        ["head", "head"],
        ["s1", "s1"],
    ]
    assert sorted(cluster.run_as("ada", "head", "srun -N2 hostname").split()) == ["head", "s1"]


def test_every_machine_knows_all_names_when_another_has_joined(three: ClusterUnderTest) -> None:
    assert set(addresses(three)) == set(NODES)
    for node in NODES:
        eventually(lambda: knows_all(three, node), 10, f"all names on {node}")  # noqa: B023
    assert sorted(three.run_as("ada", "head", "srun -N3 hostname").split()) == sorted(NODES)


def test_a_machine_without_resolved_keeps_its_resolver_and_what_that_finds(three: ClusterUnderTest) -> None:
    assert three.run("s1", "readlink -f /etc/resolv.conf").strip() == "/etc/resolv.conf"
    assert "nameserver 127.0.0.11" in three.run("s1", "cat /etc/resolv.conf").splitlines()
    assert three.attempt("s1", "dpkg-query -W systemd-resolved libnss-resolve").returncode == 1
    three.run("s1", "getent hosts control.lab")


def test_a_machine_with_resolved_keeps_its_resolver_and_what_that_finds(three: ClusterUnderTest) -> None:
    for node in ("head", "late"):
        stub = "/run/systemd/resolve/stub-resolv.conf"
        assert three.run(node, "readlink -f /etc/resolv.conf").strip() == stub
        three.run(node, "getent hosts control.lab && resolvectl query control.lab")


def test_a_name_nobody_has_fails_fast(three: ClusterUnderTest) -> None:
    for node in NODES:
        assert three.attempt(node, "getent hosts nobody-has-this-name", limit=2).returncode == 2, node


def test_names_come_back_when_cloud_init_writes_its_file_on_a_running_machine(three: ClusterUnderTest) -> None:
    three.run("late", "cloud-init single --name update_etc_hosts --frequency always")
    assert three.attempt("late", "grep tailrack /etc/hosts").returncode == 1, "nothing was written anew"
    eventually(lambda: knows_all(three, "late"), 75, "all names on late")


@pytest.mark.parametrize("node", ["late", "head"])
def test_names_outlive_a_restart_in_which_cloud_init_writes_its_own(three: ClusterUnderTest, node: str) -> None:
    restart(three, node)
    eventually(lambda: three.attempt(node, "systemctl is-active slurmd").returncode == 0, 60, "slurmd is back")
    assert knows_all(three, node), "slurmd started before the names were there"
    assert three.run(node, "hostname; cat /etc/hostname").split() == [node, node]
    own = addresses(three)[node]
    assert f"{own}:6818" in three.run(node, "ss -Hltn sport = 6818"), "slurmd listens elsewhere"
    eventually(lambda: three.run("head", f"sinfo -h -p rack -n {node} -o %T").strip() == "idle", 60, f"{node} is idle")
    assert three.run_as("ada", "head", f"srun -w {node} hostname").strip() == node


def test_a_machine_that_leaves_is_called_as_before_and_nobody_has_its_name(three: ClusterUnderTest) -> None:
    three.config["tailrack:sites"][0]["hosts"].pop()
    three.up_ok()
    before = old_name(three, "late")
    assert three.run("late", "hostname; cat /etc/hostname").split() == [before, before]
    assert three.attempt("late", "grep tailrack /etc/hosts /etc/cloud/cloud.cfg.d/*").returncode == 1
    three.run("late", f"getent hosts {before} control.lab")
    for node in ("head", "s1"):
        eventually(lambda: known_names(three, node)["late"] == [], 10, f"{node} has forgotten it")  # noqa: B023
