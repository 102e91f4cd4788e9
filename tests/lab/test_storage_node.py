"""The share on another machine than the head node (tailrack:storage.node). The tests run in this order."""

import subprocess

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine

pytestmark = pytest.mark.story

MACHINES = ("head", "n1", "n2", "s1")
# All machines of the lab have a disk at /export/shared.
PATH = "/export/shared/all"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A cluster of four machines of one's own; the log-in node s1 serves the share."""
    cluster = make_cluster("sn")
    hosts = [{**own_machine(cluster.lab, name), **({"login": True} if name == "s1" else {})} for name in MACHINES]
    cluster.use_machines({"name": "rack", "hosts": hosts, "fabric": "tailnet"})
    cluster.config["tailrack:groups"] = [{"name": "vision", "gid": 7001}]
    cluster.config["tailrack:users"][0]["groups"] = ["vision"]
    cluster.config["tailrack:storage"] = {"node": "s1", "path": PATH}
    cluster.up_ok()
    return cluster


def test_all_machines_mount_the_share_of_the_storage_node(cluster: ClusterUnderTest) -> None:
    source = f"{cluster.address('s1')}:{PATH}\n"
    for node, mount in (("head", PATH), ("head", "/shared"), ("n1", "/shared"), ("n2", "/shared")):
        assert cluster.run(node, f"ls {mount} >/dev/null; findmnt -n -o SOURCE -t fuse.nfs4,nfs4 {mount}") == source
    assert cluster.run("s1", f"stat -c '%U %a' {PATH}/home/ada {PATH}/groups/vision") == "ada 700\nroot 2770\n"
    assert cluster.attempt("head", "systemctl is-active nfs-server nfs-ganesha").returncode != 0


def test_a_file_of_a_job_is_on_the_storage_node_and_on_all_others(cluster: ClusterUnderTest) -> None:
    cluster.run_as("ada", "head", "srun -w n2 bash -c 'echo of n2 >~/file; echo x >/shared/groups/vision/x'")
    for node in ("head", "n1", "n2", "s1"):
        assert cluster.run_as("ada", node, "cat file") == "of n2\n"
    assert cluster.run("s1", f"stat -c '%U %G' {PATH}/groups/vision/x") == "ada vision\n"


def test_root_of_the_head_node_alone_has_rights_on_the_share(cluster: ClusterUnderTest) -> None:
    exports = cluster.run("s1", "cd /etc/exports.d && grep -H '' *").splitlines()
    rows = [(node, cluster.address(node), "no_" * (node == "head")) for node in MACHINES]
    assert exports == [
        f"tailrack-{node}.exports:{PATH} {ip}/32(rw,sync,secure,{no}root_squash,no_subtree_check)"
        for node, ip, no in rows
    ]
    assert cluster.attempt("n1", "cat /shared/home/ada/file").returncode != 0
    assert cluster.run("head", "cat /shared/home/ada/file") == "of n2\n"


def test_a_second_up_changes_nothing(cluster: ClusterUnderTest) -> None:
    cluster.up_ok()
    assert not {name for name in cluster.touched() if not name.startswith("validate")}


def test_the_share_works_again_after_its_node_has_restarted(cluster: ClusterUnderTest) -> None:
    subprocess.run(["docker", "restart", cluster.container("s1")], check=True, capture_output=True)
    eventually(lambda: cluster.attempt("n1", "cat /shared/.tailrack/names", limit=20).returncode == 0, 120, "the share")
    for node in ("head", "n2"):
        eventually(lambda node=node: cluster.run_as("ada", node, "cat file") == "of n2\n", 60, f"{node} reads")  # type: ignore[misc]
    assert cluster.run_as("ada", "head", "srun -w n1 cat file") == "of n2\n"


def test_the_share_does_not_go_elsewhere_unasked(cluster: ClusterUnderTest) -> None:
    site, hosts = cluster.config["tailrack:sites"][0], cluster.config["tailrack:sites"][0]["hosts"]
    del cluster.config["tailrack:storage"]["node"]
    for site["hosts"] in (hosts[:-1], hosts):
        messages = "\n".join(failure.message for failure in cluster.up().failures)
        assert "the share is on s1, and the config has it on head, where its files are not" in messages
        assert cluster.run_as("ada", "n1", "cat file") == "of n2\n"
    cluster.config["tailrack:storage"]["node"] = "s1"
    cluster.up_ok()
    assert cluster.run_as("ada", "s1", "cat file") == "of n2\n"


def test_another_machine_in_its_place_is_refused_until_it_has_the_files(cluster: ClusterUnderTest) -> None:
    cluster.run("s1", f"mv {PATH}/.tailrack/share /root/share")
    (failure,) = cluster.repair("s1").failures
    assert f"{PATH} on s1 is not the cluster's share: its files are missing there" in failure.message
    cluster.run("s1", f"mv -f /root/share {PATH}/.tailrack/share")
    assert cluster.repair("s1").ok


def test_the_cluster_ends_and_the_files_stay_on_the_storage_node(cluster: ClusterUnderTest) -> None:
    assert cluster.deployment().destroy().ok
    assert cluster.run("s1", f"cat {PATH}/home/ada/file") == "of n2\n"
    left = "grep -c -e ' /shared ' -e ' /export/shared/all ' /proc/self/mountinfo || true"
    assert {cluster.run(node, left) for node in MACHINES} == {"0\n"}
    assert cluster.run("s1", "ls /etc/exports.d 2>/dev/null || true") == ""
