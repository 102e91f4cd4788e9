"""The share as the kernel's own NFS server gives it: version 4, to members alone, and nothing else open for it."""

import pytest

from tests.lab.cluster import as_user
from tests.machines.cluster import MachineCluster

pytestmark = pytest.mark.short


def listening(cluster: MachineCluster, node: str) -> set[str]:
    """Local addresses with ports at which something of NFS listens, by its well-known ports and its programs."""
    lines = cluster.run(node, "ss -Hlntup").splitlines()
    ports = (":111 ", ":2049 ", ":20048 ")
    return {
        line.split()[4] for line in lines if any(port in line for port in ports) or "rpc." in line or "rpcbind" in line
    }


def test_the_kernel_serves_version_4_and_no_older_one(cluster: MachineCluster) -> None:
    versions = cluster.run("head", "cat /proc/fs/nfsd/versions").split()
    assert "-3" in versions
    assert "+4.2" in versions
    assert cluster.run("head", "cat /proc/fs/nfsd/nfsv4leasetime /proc/fs/nfsd/nfsv4gracetime").split() == ["30", "30"]
    assert cluster.attempt("head", "systemctl is-active nfs-ganesha").stdout == "inactive\n"


def test_nothing_but_the_server_listens_for_nfs(cluster: MachineCluster) -> None:
    assert listening(cluster, "head") == {"0.0.0.0:2049", "[::]:2049"}
    assert listening(cluster, "n1") == set()


def test_the_export_is_for_the_one_address_of_each_member(cluster: MachineCluster) -> None:
    members = [cluster.run(node, "tailscale ip -4").strip() for node in cluster.nodes]
    exports = cluster.run("head", "exportfs -s").splitlines()
    assert sorted(line.split()[1].partition("(")[0].removesuffix("/32") for line in exports) == sorted(members)
    assert all("root_squash" in line and "no_root_squash" not in line for line in exports)


def test_the_server_answers_on_the_tailnet_and_on_no_other_network(cluster: MachineCluster) -> None:
    head = cluster.run("head", "tailscale ip -4").strip()
    knock = "timeout 10 bash -c '</dev/tcp/{}/2049'"
    assert cluster.attempt("n1", knock.format(head)).returncode == 0
    assert cluster.attempt("n1", knock.format(cluster.machines["head"].address)).returncode != 0
    assert cluster.run("n1", "findmnt -rn -t nfs4 -o SOURCE /shared").split() == [f"{head}:/export/shared"]


def test_the_share_contains_a_users_files_and_grants_a_nodes_root_nothing(cluster: MachineCluster) -> None:
    cluster.run_as("ada", "n1", "echo precious >results")
    assert cluster.run("head", "stat -c '%U %s' /export/shared/home/ada/results") == "ada 9\n"
    assert cluster.attempt("n1", "touch /shared/home/ada/of-root").returncode != 0
    refused = cluster.attempt("n1", as_user("bob", "cat /shared/home/ada/results"))
    assert "Permission denied" in refused.stderr
