"""The users' homes on a file system that people have already (tailrack:storage.homes). The tests run in this order.

The NFS server is a machine that is not in the cluster, in the networks of both sites; it squashes root.
"""

import subprocess

import pytest

from lab.identity import network_name
from tests.lab.cluster import ClusterUnderTest, own_machine
from tests.lab.test_mounts import EXPORT, SERVER

pytestmark = pytest.mark.story

NODES, FOLDER, SOURCE = ("head", "a1", "b1"), "/export/shared/homes", "nas.lab:/export/shared/homes"


@pytest.fixture(scope="module")
def cluster(full: ClusterUnderTest) -> ClusterUnderTest:
    """A cluster with its homes on the share, and a server that its machines know by name, with an empty folder."""
    own_machine(full.lab, "nas", site="cloud-b")
    # A head node that runs no jobs has the homes too.
    full.config["tailrack:head"] = {"name": "head", "site": "cloud-a"}
    full.up_ok()
    nas = full.container("nas")
    subprocess.run(["docker", "network", "connect", network_name(full.lab, "cloud-a"), nas], check=True)
    for node in NODES:
        network = network_name(full.lab, "cloud-b" if node == "b1" else "cloud-a")
        address = f'{{{{(index .NetworkSettings.Networks "{network}").IPAddress}}}}'
        shown = subprocess.run(["docker", "inspect", "-f", address, nas], check=True, capture_output=True, text=True)
        full.run(node, f"echo {shown.stdout.strip()} nas.lab >>/etc/hosts")
    exports = f"{SERVER}{EXPORT.format(number=1, name='homes')}"
    full.run("nas", f"install -d {FOLDER}; cat >/etc/ganesha/ganesha.conf <<'END'\n{exports}\nEND")
    full.run("nas", "systemctl restart nfs-ganesha")
    return full


def up_with(cluster: ClusterUnderTest, **homes: str) -> list[str]:
    """Bring the cluster up with these homes; return its failures."""
    cluster.config["tailrack:storage"]["homes"] = homes
    return [failure.message for failure in cluster.up().failures]


def homes_of(cluster: ClusterUnderTest) -> set[str]:
    """Return where the users' homes are on all machines."""
    return {cluster.run_as(user, node, "pwd").strip() for user in ("ada", "bob") for node in NODES}


def test_homes_that_no_one_may_make_are_named_with_the_command_for_the_server(cluster: ClusterUnderTest) -> None:
    (failure,) = up_with(cluster, path="/homes", source=SOURCE)
    assert "there is no home in /homes that belongs to ada, bob, and neither root nor the user may make one" in failure
    assert "'install -d -m 0700 -o 6001 -g 6001 ada'" in failure


def test_homes_on_the_server_are_those_of_all_machines(cluster: ClusterUnderTest) -> None:
    # Where users may make folders, the others make their own.
    cluster.run("nas", f"cd {FOLDER}; install -d -m 0700 -o 6001 -g 6001 ada; chmod 1777 .")
    assert up_with(cluster, path="/homes", source=SOURCE) == []
    assert homes_of(cluster) == {"/homes/ada", "/homes/bob"}
    assert cluster.run("nas", f"stat -c '%n %u %a' {FOLDER}/*") == f"{FOLDER}/ada 6001 700\n{FOLDER}/bob 6002 700\n"
    for node in NODES:
        assert cluster.run(node, "findmnt -n -o SOURCE -t fuse.nfs4,nfs4 /homes") == f"{SOURCE}\n"
    cluster.run_as("ada", "head", "srun -w b1 bash -c 'echo of b1 >~/file'")
    assert cluster.run_as("ada", "a1", "cat file") == "of b1\n"
    assert cluster.run_as("ada", "head", "ssh a1 cat file") == "of b1\n"
    cluster.up_ok()
    assert not {name for name in cluster.touched() if name.endswith(("-node", "-head"))}


def test_a_node_with_another_file_system_there_is_refused(cluster: ClusterUnderTest) -> None:
    mount = f"mkdir -p /lustre/home && mount -t nfs4 {SOURCE} /lustre/home"
    for node in ("head", "b1"):
        cluster.run(node, mount)
    (failure,) = up_with(cluster, path="/lustre/home", type="present")
    assert "the required mount /lustre/home cannot be read (No such file or directory)" in failure
    cluster.run("a1", "mkdir -p /lustre/home && mount -t tmpfs other /lustre/home && mkdir /lustre/home/ada")
    (failure,) = up_with(cluster, path="/lustre/home", type="present")
    assert "has no home /lustre/home/ada that belongs to user ada" in failure
    cluster.run("a1", f"umount /lustre/home && {mount}")
    assert up_with(cluster, path="/lustre/home", type="present") == []
    assert homes_of(cluster) == {"/lustre/home/ada", "/lustre/home/bob"}
    assert cluster.run_as("ada", "b1", "cat file") == "of b1\n"
    for node in NODES:
        assert cluster.attempt(node, "ls -d /homes").returncode != 0


def test_without_the_key_the_homes_are_on_the_share_again(cluster: ClusterUnderTest) -> None:
    del cluster.config["tailrack:storage"]["homes"]
    cluster.up_ok()
    assert homes_of(cluster) == {"/shared/home/ada", "/shared/home/bob"}
    assert cluster.run("nas", f"cat {FOLDER}/ada/file") == "of b1\n"
    for node in NODES:
        assert cluster.attempt(node, "mountpoint -q /lustre/home && ! ls /etc/tailrack/mounts.json").returncode == 0
