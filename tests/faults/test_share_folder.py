"""A share that is a folder of a larger file system, and what is left of it on the head node when the cluster goes."""

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, eventually
from tests.lab.run_step import run_python

DISK, EXPORT, MOUNT = "/export/shared", "/export/shared/part", "/shared"
UNITS = "rpcbind.socket rpcbind.service rpc-statd.service rpc-statd-notify.service nfs-ganesha-lock.service"


# A cluster of its own, for three tests.


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """The dev stack with its share in a folder of the disk, which users see in another place too."""
    made = make_cluster("t20")
    made.config["tailrack:storage"] = {"path": EXPORT}
    made.up_ok()
    return made


def flags(cluster: ClusterUnderTest, place: str) -> set[str]:
    """The flags of what is mounted at a place of the head node."""
    return set(cluster.run("head", f"findmnt -n -o VFS-OPTIONS --mountpoint {place}").strip().split(","))


def test_the_folder_is_served_and_every_way_to_it_is_without_set_uid_programs(cluster: ClusterUnderTest) -> None:
    for node in ("a1", "b1"):
        cluster.run_as("ada", node, f"echo {node} >~/{node} && sync ~/{node}")
        assert cluster.run("head", f"cat {EXPORT}/home/ada/{node}") == f"{node}\n"
    for place in (EXPORT, MOUNT):
        assert flags(cluster, place) >= {"nosuid", "nodev"}
    # What is around the share is the machine's own.
    assert not flags(cluster, DISK) & {"nosuid", "nodev"}


def test_another_mount_of_the_disk_and_a_start_leave_no_way_around(cluster: ClusterUnderTest) -> None:
    cluster.run("head", f"mkdir -p /mnt/disk && mount --bind {DISK} /mnt/disk && umount -l {EXPORT}")
    cluster.run("head", "systemctl start tailrack-share.service")
    for place in (EXPORT, "/mnt/disk/part"):
        assert flags(cluster, place) >= {"nosuid", "nodev"}
    for unit in ("tailrack-share.service", "tailrack-share.path"):
        assert cluster.run("head", f"systemctl is-enabled {unit}") == "enabled\n"
    before = cluster.run("head", "systemctl show -P Before tailrack-share.service").split()
    assert {"systemd-user-sessions.service", "nfs-ganesha.service"} <= set(before)


def test_after_the_cluster_nothing_of_the_share_but_its_files_is_left(cluster: ClusterUnderTest) -> None:
    """The parts of `down` for the role and, last, for the machine, with somebody at work on the share."""
    cluster.run_as("ada", "head", "cd ~ && (exec -a at-work sleep 300 >/dev/null 2>&1 </dev/null &)")
    masked = f"for unit in {UNITS}; do systemctl is-enabled $unit; done"
    assert set(cluster.attempt("head", masked).stdout.split()) == {"masked"}
    names = "from components.node.step.step import Step; from components.roles.base.machine import host as machine"
    names += "; from components.roles.storage.share import host as share; step = Step('head', 'test')"
    done = run_python(cluster, "head", f"{names}; share.leave(step, {MOUNT!r}); machine.leave(step, False)")
    assert done.returncode == 0, done.stderr
    mounts = cluster.run("head", "findmnt -rn -o TARGET").split()
    assert not {EXPORT, MOUNT, "/mnt/disk/part"} & set(mounts)
    assert "masked" not in cluster.attempt("head", masked).stdout
    units = cluster.attempt("head", "systemctl list-unit-files --no-legend 'tailrack-share*' shared.mount")
    assert units.stdout == ""
    left = "ls -d /shared /etc/tailrack/share /var/lib/tailrack/share /usr/local/sbin/tailrack-share 2>/dev/null"
    assert cluster.attempt("head", left).stdout == ""
    assert "user:1000" not in cluster.run("head", f"getfacl -cnp {EXPORT}")
    assert cluster.run("head", f"stat -c %A {EXPORT}") == "drwxr-xr-x\n"
    # The package's own file, as it was.
    assert "ganesha.conf" not in cluster.run("head", "dpkg --verify nfs-ganesha")
    # Files stay, and who was at work is.
    assert cluster.run("head", f"cat {EXPORT}/home/ada/a1") == "a1\n"
    assert cluster.attempt("head", "pgrep -f ^at-work").returncode == 0
    eventually(lambda: cluster.attempt("head", as_user("admin", f"ls {EXPORT}")).returncode == 0, 5, "admin gets in")
