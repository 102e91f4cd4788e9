"""The first contact with machines that others are at work on, or that serve another cluster.

Two such machines come to a plain cluster. The tests run in the order of this file.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from cli.run_events import Summary
from lab.profiles.machine import CLASHING_UID
from tests.lab.cluster import ClusterUnderTest, eventually, own_machine

# All that a step could write, but for where machines keep what changes by itself.
# The check itself brings the program that checks.
LOOK = "find /etc /var/lib /usr -xdev -type f ! -path '/var/lib/tailrack*' \
! -path '/usr/local/lib/tailrack/program/*' ! -path '/var/lib/apt/*' \
! -path '/var/lib/systemd/*' ! -path '/var/lib/fail2ban/*' -printf '%p %s %m %u %T@\n' | sort | sha256sum"
BACKUP = "/var/lib/tailrack/backup"


@pytest.fixture(scope="module")
def cluster(two_machines: ClusterUnderTest) -> Iterator[ClusterUnderTest]:
    """The cluster without the machines that this file adds afterwards."""
    before = [*two_machines.config["tailrack:sites"][0]["hosts"]]
    yield two_machines
    two_machines.config["tailrack:sites"][0]["hosts"] = before


@pytest.fixture(scope="module")
def server(cluster: ClusterUnderTest) -> dict[str, Any]:
    """A machine of another cluster, as a host of the config."""
    return own_machine(cluster.lab, "s1", like="server")


def up_with(cluster: ClusterUnderTest, host: dict[str, Any]) -> Summary:
    """Bring the stack up with one more host."""
    hosts = cluster.config["tailrack:sites"][0]["hosts"]
    hosts[:] = [*(each for each in hosts if each["name"] != host["name"]), host]
    return cluster.up()


def refusal(cluster: ClusterUnderTest, host: dict[str, Any]) -> str:
    """What the gate says of a host that it refuses; nothing else may fail, and no later step may run."""
    (failure,) = up_with(cluster, host).failures
    assert failure.urn.endswith(f"::{host['name']}-prepare")
    return failure.message


def succeeded(cluster: ClusterUnderTest, host: dict[str, Any]) -> None:
    summary = up_with(cluster, host)
    assert summary.ok, "\n\n".join(failure.message for failure in summary.failures)


def becomes_idle(cluster: ClusterUnderTest, node: str) -> None:
    asked = f"sinfo -h -p rack -n {node} -o %T"
    eventually(lambda: cluster.run("head", asked).strip() == "idle", 60, f"{node} is idle")


def test_a_new_cloud_machine_is_waited_for_and_a_broken_source_on_it_is_passed_over(cluster: ClusterUnderTest) -> None:
    host = own_machine(cluster.lab, "c1", like="cloud", busy=True)
    cluster.run("c1", "echo 'deb file:/nonexistent stable main' >/etc/apt/sources.list.d/vendor.list")
    assert cluster.attempt("c1", "cloud-init status").stdout.strip() == "status: running"
    succeeded(cluster, host)
    log = cluster.run("c1", "cat /var/log/tailrack/c1-prepare.log")
    assert "waiting for cloud-init, at most" in log
    assert "'file:/nonexistent stable Release' does not have a Release file" in log
    assert "continuing with the others" in log
    becomes_idle(cluster, "c1")


def test_a_lock_of_apt_is_waited_for_and_its_holder_is_named(cluster: ClusterUnderTest) -> None:
    # The profile's program for daily updates; it ends when the step says that it waits for it.
    log = "/var/log/tailrack/c1-prepare.log"
    seen = f"until grep -qs waiting {log}; do sleep 0.2; done; systemctl stop updates"
    cluster.run("c1", f"apt-get -y -q remove jq; rm {log}")
    cluster.run("c1", "systemd-run --collect --unit=updates hold-apt 300")
    cluster.run("c1", f"systemd-run --collect --unit=seen sh -c '{seen}'")
    cluster.config["tailrack:cluster"]["munge_generation"] = "again"
    cluster.up_ok()
    said = cluster.run("c1", f"grep waiting {log}")
    assert "waiting, at most 600s: " in said
    assert "hold-apt" in said
    becomes_idle(cluster, "c1")


def test_a_uid_that_is_somebody_elses_is_found_before_anything_is_changed(
    cluster: ClusterUnderTest, server: dict[str, Any]
) -> None:
    before = cluster.run("s1", LOOK)
    message = refusal(cluster, server)
    assert f"uid {CLASHING_UID} is carol here and should be ada" in message
    assert "next: choose other uids in tailrack:users" in message
    assert cluster.run("s1", LOOK) == before


def test_check_rejects_a_machine_of_another_cluster_and_changes_nothing(
    cluster: ClusterUnderTest, server: dict[str, Any]
) -> None:
    cluster.run("s1", "userdel carol")
    before = cluster.run("s1", LOOK)
    message = refusal(cluster, server)
    assert "a munge key (/etc/munge/munge.key), /etc/slurm/slurm.conf of cluster atlas" in message
    assert "set take_over: true for it" in message
    assert cluster.run("s1", LOOK) == before
    assert cluster.run("s1", "munge -n | unmunge | grep -c Success").strip() == "1"


def test_an_adopted_machine_joins_and_keeps_its_own_files(cluster: ClusterUnderTest, server: dict[str, Any]) -> None:
    key = cluster.run("s1", "sha256sum </etc/munge/munge.key")
    conf = cluster.run("s1", "cat /etc/slurm/slurm.conf")
    succeeded(cluster, {**server, "take_over": True})
    becomes_idle(cluster, "s1")
    assert cluster.run_as("ada", "s1", "srun -w s1 hostname").strip()
    assert cluster.run("s1", f"sha256sum <{BACKUP}/etc/munge/munge.key") == key
    assert cluster.run("s1", f"cat {BACKUP}/etc/slurm/slurm.conf") == conf
    assert cluster.run("s1", f"stat -c '%a %U' {BACKUP}").split() == ["700", "root"]
    assert cluster.attempt("s1", f"su nobody -s /bin/sh -c 'ls {BACKUP}'").returncode != 0


GANESHA = """NFS_CORE_PARAM {
    Protocols = 4; mount_path_pseudo = true; allow_set_io_flusher_fail = true; Enable_RQUOTA = false; }
NFSV4 { RecoveryBackend = fs; Grace_Period = 1; Lease_Lifetime = 5; }
EXPORT { Export_Id = 7; Path = /export/shared; Pseudo = /export/shared; Access_Type = RW;
    SecType = sys; FSAL { Name = VFS; } }
"""


def test_a_stranger_mounts_from_it_after_up_as_before(cluster: ClusterUnderTest, server: dict[str, Any]) -> None:
    own_machine(cluster.lab, "other")
    # This kernel has no NFS server, so another one serves; what the gate found is the machine's own /etc/exports.
    cluster.run("s1", "DEBIAN_FRONTEND=noninteractive apt-get -q -y install nfs-ganesha nfs-ganesha-vfs", 300)
    cluster.run("s1", f"printf '%s' '{GANESHA}' >/etc/ganesha/ganesha.conf; echo thesis >/export/shared/t")
    cluster.run("s1", "systemctl restart nfs-ganesha")
    mount = f"mkdir -p /mnt/p; mount -t nfs4 {server['address']}:/export/shared /mnt/p; cat /mnt/p/t"
    eventually(lambda: cluster.attempt("other", mount).stdout.strip() == "thesis", 60, "a stranger has mounted")
    rules = cluster.run("s1", "nft list table inet tailrack")
    assert "2049" not in rules
    assert "6816" in rules


def test_a_library_update_does_not_restart_services_that_jobs_need(cluster: ClusterUnderTest) -> None:
    """The machine has needrestart, set to restart by itself, as Ubuntu since 24.04 has it."""

    def munged() -> str:
        return cluster.run("c1", "systemctl show -P MainPID munge")

    # As an update does it: who runs has the old one still. munged has Debian's libgcrypt, and not libcrypto.
    library = "$(realpath /usr/lib/*/libgcrypt.so.20)"
    cluster.run("c1", f"cp -p {library} {library}.new && mv {library}.new {library}")
    ours, aside = "/etc/needrestart/conf.d/tailrack.conf", "/root/tailrack.conf"
    before = munged()
    said = cluster.run("c1", "needrestart -v -r a 2>&1", 120)
    assert "munge.service" in said.partition("deferred")[2], said
    assert munged() == before
    cluster.run("c1", f"mv {ours} {aside}")
    try:
        cluster.run("c1", "needrestart -r a", 120)
    finally:
        cluster.run("c1", f"mv {aside} {ours}")
    assert munged() != before, "needrestart does what is shown here not to happen"
    becomes_idle(cluster, "c1")


def test_its_own_exports_stay(cluster: ClusterUnderTest) -> None:
    assert cluster.run("s1", "grep -c '^/srv/projects 192.0.2.0/24' /etc/exports").strip() == "1"
    assert cluster.attempt("s1", "ls /etc/nfs.conf.d/tailrack.conf").returncode != 0


def test_a_machine_that_is_ours_is_not_refused_once_more(cluster: ClusterUnderTest, server: dict[str, Any]) -> None:
    succeeded(cluster, server)
    assert cluster.touched() == {"s1-prepare"}


def test_a_machine_that_leaves_has_its_own_files_again(cluster: ClusterUnderTest) -> None:
    hosts = cluster.config["tailrack:sites"][0]["hosts"]
    hosts[:] = [host for host in hosts if host["name"] != "s1"]
    cluster.up_ok()
    assert "ClusterName=atlas" in cluster.run("s1", "cat /etc/slurm/slurm.conf")
    assert cluster.run("s1", "stat -c %U /etc/munge/munge.key").strip() == "munge"
    assert cluster.attempt("s1", f"ls {BACKUP}").returncode != 0
