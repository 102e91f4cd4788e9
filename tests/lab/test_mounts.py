"""Mounts by site (tailrack:storage.mounts), as users and their jobs see them. The tests run in this order.

The NFS server is a machine that is not in the cluster, in the network of one site.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually, own_machine

pytestmark = pytest.mark.story

EXPORTS = ("data", "models")
EXPORT = """
EXPORT {{
    Export_Id = {number}; Path = /export/shared/{name}; Pseudo = /export/shared/{name}; Access_Type = RW;
    Attr_Expiration_Time = 0; Squash = Root_Squash; SecType = sys; FSAL {{ Name = VFS; }}
}}"""
SERVER = """
NFS_CORE_PARAM { Protocols = 4; mount_path_pseudo = true; allow_set_io_flusher_fail = true; Enable_RQUOTA = false; }
NFSV4 { Grace_Period = 5; Lease_Lifetime = 10; RecoveryBackend = fs; Only_Numeric_Owners = true; }
"""


@pytest.fixture(scope="module")
def cluster(full: ClusterUnderTest) -> ClusterUnderTest:
    """A cluster with an NFS server in the network of b1's site."""
    address = own_machine(full.lab, "nas", site="cloud-b")["address"]
    serve(full)
    data, models = (f"{address}:/export/shared/{name}" for name in EXPORTS)
    full.config["tailrack:storage"]["mounts"] = [
        {"path": "/data", "source": data, "sites": ["cloud-b"], "options": ["noatime"]},
        {"path": "/models", "source": models, "sites": ["cloud-b"], "read_only": True},
    ]
    full.up_ok()
    return full


def serve(cluster: ClusterUnderTest) -> None:
    """Make the server's folders, on its volume, because nfs-ganesha serves neither memory nor an overlay; start it."""
    exports = "".join(EXPORT.format(number=number, name=name) for number, name in enumerate(EXPORTS, 1))
    folders = " ".join(f"/export/shared/{name}" for name in EXPORTS)
    cluster.run("nas", f"install -d -m 1777 {folders}")
    cluster.run(
        "nas",
        f"echo weights >/export/shared/models/weights; cat >/etc/ganesha/ganesha.conf <<'END'\n{SERVER}{exports}\nEND",
    )
    cluster.run("nas", "systemctl restart nfs-ganesha")


@contextmanager
def silent_server(cluster: ClusterUnderTest) -> Iterator[None]:
    """Stop all of the server's processes, while its kernel still accepts connections."""
    subprocess.run(["docker", "pause", cluster.container("nas")], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["docker", "unpause", cluster.container("nas")], check=True, capture_output=True)


def features(cluster: ClusterUnderTest, node: str) -> set[str]:
    return set(cluster.run("head", f"sinfo -h -n {node} -p all -o %b").strip().split(","))


def findings(cluster: ClusterUnderTest, node: str) -> str:
    """Return what the health check finds about mounts."""
    lines = cluster.attempt(node, "tailrack-checks").stdout.splitlines()
    return "\n".join(line for line in lines if " mount: " in f" {line}" or line.split()[1:2] == ["mount:"])


def test_users_read_and_write_at_the_mount_of_a_site(cluster: ClusterUnderTest) -> None:
    cluster.run_as("ada", "b1", "echo images >/data/set && cat /models/weights")
    assert cluster.run("nas", "stat -c %u /export/shared/data/set; cat /export/shared/data/set") == "6001\nimages\n"
    options = cluster.run("b1", "findmnt -n -o VFS-OPTIONS /data").strip().split(",")
    assert {"rw", "nosuid", "nodev", "noatime"} <= set(options)


def test_a_read_only_mount_refuses_writes(cluster: ClusterUnderTest) -> None:
    assert "Read-only file system" in cluster.attempt("b1", "touch /models/more").stderr
    assert findings(cluster, "b1") == ""


def test_other_sites_have_nothing_of_it(cluster: ClusterUnderTest) -> None:
    for node in ("a1", "head"):
        assert cluster.attempt(node, "ls -d /data || ls /etc/tailrack/mounts.json").returncode != 0
    assert features(cluster, "a1") == {"site-cloud-a"}


def test_a_job_that_requests_the_mount_runs_only_with_a_working_mount(cluster: ClusterUnderTest) -> None:
    assert features(cluster, "b1") == {"site-cloud-b", "mount-data", "mount-models"}
    assert cluster.run_as("ada", "head", "srun -C mount-data bash -c 'hostname; cat /data/set'") == "b1\nimages\n"
    refused = cluster.attempt("head", "su - ada -c 'srun -w a1 -C mount-data true'")
    assert "Requested node configuration is not available" in refused.stderr


def test_a_second_up_changes_nothing(cluster: ClusterUnderTest) -> None:
    cluster.up_ok()
    assert not {name for name in cluster.touched() if name.endswith("-node")}


def test_a_server_that_hangs_is_found_and_hangs_no_check(cluster: ClusterUnderTest) -> None:
    with silent_server(cluster):
        cluster.run("b1", "tailrack-mounts", limit=60)
        seen = findings(cluster, "b1")
        assert "warning mount: /data does not answer within 10 s" in seen
        assert features(cluster, "b1") == {"site-cloud-b"}
        # The node takes other jobs.
        assert cluster.run_as("ada", "head", "srun -w b1 hostname") == "b1\n"
        # The next check starts no further process that hangs.
        count = "pgrep -fc '^stat -f -c .* -- /data$|^find /data -maxdepth' || true"
        before = int(cluster.run("b1", count))
        cluster.run("b1", "tailrack-mounts", limit=60)
        assert int(cluster.run("b1", count)) <= max(before, 1)
    eventually(lambda: check(cluster) == {"site-cloud-b", "mount-data", "mount-models"}, 60, "the mounts work again")
    assert findings(cluster, "b1") == ""


def check(cluster: ClusterUnderTest) -> set[str]:
    """Run the check of every minute now, and return the node's features."""
    cluster.attempt("b1", "tailrack-mounts")
    return features(cluster, "b1")


def test_a_server_that_is_gone_is_named_with_the_next_command(cluster: ClusterUnderTest) -> None:
    cluster.run("nas", "systemctl stop nfs-ganesha")
    cluster.run("b1", "tailrack-mounts", limit=60)
    seen = findings(cluster, "b1")
    assert re.search(r"/data does not answer.*: port 2049 of \S+ does not answer .*next: check that", seen)
    cluster.run("nas", "systemctl start nfs-ganesha")
    eventually(lambda: "mount-data" in check(cluster), 60, "the mount works again")


def test_a_required_mount_that_fails_stops_its_own_node_alone(cluster: ClusterUnderTest) -> None:
    before = list(cluster.config["tailrack:storage"]["mounts"])
    # The lab's control server is there, and serves no NFS.
    lost = {"path": "/lost", "source": "control.lab:/lost", "sites": ["cloud-b"], "required": True}
    cluster.config["tailrack:storage"]["mounts"] = [*before, lost]
    (failure,) = cluster.up().failures
    assert re.search(r"the required mount /lost .*: port 2049 of control.lab does not answer", failure.message)
    spare = {"path": "/mnt/spare", "type": "present", "sites": ["cloud-b"]}
    cluster.config["tailrack:storage"]["mounts"] = [*before, spare]
    cluster.up_ok()
    assert "warning mount: /mnt/spare cannot be read (No such file or directory)" in findings(cluster, "b1")
    cluster.run("b1", "mkdir /mnt/spare && mount -t tmpfs provider /mnt/spare")
    assert "mount-mnt-spare" in check(cluster)
    assert cluster.attempt("b1", "ls -d /lost /etc/systemd/system/lost.automount").stdout == ""


@pytest.mark.parametrize(
    ("options", "problem"),
    [("ro", "/mnt/spare is read-only"), ("rw,nr_inodes=2", "/mnt/spare has no room for more files")],
)
def test_a_mount_that_takes_no_files_loses_its_feature(cluster: ClusterUnderTest, options: str, problem: str) -> None:
    cluster.run("b1", f"touch /mnt/spare/kept; mount -o remount,{options} /mnt/spare")
    assert "mount-mnt-spare" not in check(cluster)
    assert f"warning mount: {problem}" in findings(cluster, "b1")
    # The preflight is a job of a user.
    results = cluster.run_as("ada", "b1", "test -r /etc/tailrack/mounts.json && cat /run/tailrack/mounts.json")
    assert problem.partition(" ")[2] in results
    cluster.run("b1", "mount -o remount,rw,nr_inodes=100 /mnt/spare && rm /mnt/spare/kept")
    assert "mount-mnt-spare" in check(cluster)


def test_without_the_line_in_the_config_it_is_unmounted_when_no_job_uses_it(cluster: ClusterUnderTest) -> None:
    script = "until [ -e end ]; do sleep 0.2; done; date >ended"
    words = f"sbatch --parsable -D /data -C mount-data --output=none --wrap '{script}'"
    job = cluster.run_as("ada", "head", words).strip()
    eventually(lambda: cluster.run("head", f"squeue -h -j {job} -o %t").strip() == "R", 60, "the job runs")
    del cluster.config["tailrack:storage"]["mounts"]
    cluster.up_ok()
    assert features(cluster, "b1") == {"site-cloud-b"}
    assert cluster.run("b1", "findmnt -n -o TARGET -t fuse.nfs4,nfs4 /data") == "/data\n"
    # The mount of the provider stays, and the one that nobody used is gone.
    assert cluster.attempt("b1", "mountpoint -q /mnt/spare && ! ls -d /models").returncode == 0
    cluster.run_as("ada", "b1", "touch /data/end")
    eventually(lambda: not cluster.run("head", f"squeue -h -j {job}").strip(), 60, "the job ended by itself")
    cluster.run("nas", "cat /export/shared/data/ended")
    cluster.attempt("b1", "tailrack-mounts")
    left = "ls -d /data /etc/systemd/system/*data.*mount /etc/tailrack/mounts.json /var/lib/tailrack/mounts"
    left = f"{left} /usr/local/sbin/tailrack-mounts"
    eventually(lambda: cluster.attempt("b1", left).stdout == "", 90, "nothing of it is left")
    units = "systemctl list-units --all --plain --no-legend data.automount data.mount"
    eventually(lambda: cluster.run("b1", units) == "", 60, "systemd has none of its units")
