"""Machines of one's own (kind hosts), as a provider hands them over: nothing of the cluster's software on them.

The tests share two such machines and run in the order of this file: set up, remove one, destroy.
"""

from collections.abc import Iterator

import pytest

from cli.head.answer import as_root, over_ssh
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine
from tests.lab.sealer import sealer_of

SUDO_PASSWORD = "nobody may see this"
# What a machine must not have any more when it has left. Each line's command fails where it is still there.
CLEAN = """
! systemctl -q is-active slurmd
! systemctl -q is-enabled slurmd
! systemctl -q is-active munge
! test -e /etc/munge/munge.key
! systemctl -q is-active tailscaled
! test -e /var/lib/tailscale/tailscaled.state
! test -e /etc/ssh/tailrack_leave_key
! test -e /etc/ssh/tailrack_authority.pub
! test -e /etc/ssh/ssh_config.d/tailrack.conf
"""
CLEAN_NODE = CLEAN + "! findmnt /shared\n"
CLEAN_HEAD = CLEAN + "! systemctl -q is-active slurmctld\n! systemctl -q is-active nfs-ganesha\n! ls /etc/exports.d/*\n"


@pytest.fixture(scope="module")
def machines(make_cluster: MakeCluster) -> Iterator[ClusterUnderTest]:
    """A stack of two bare machines at one site, nothing set up yet."""
    made = make_cluster("h1")
    head = own_machine(made.lab, "head", bare=True)
    site = {"name": "rack", "hosts": [head, own_machine(made.lab, "n1", bare=True)]}
    made.use_machines(site, computes=True)
    # On the head node sudo asks for no password.
    made.run("n1", f"echo 'admin:{SUDO_PASSWORD}' | chpasswd; sed -i s/NOPASSWD:// /etc/sudoers.d/admin")
    _, sealer = sealer_of(made)
    made.config["tailrack:sites"][0]["sudo_password"] = {"secure": sealer.seal(SUDO_PASSWORD)}
    yield made
    # What could open it is gone with the stack.
    made.config["tailrack:sites"][0].pop("sudo_password")


@pytest.fixture(scope="module")
def cluster(machines: ClusterUnderTest) -> ClusterUnderTest:
    """The two machines as a cluster, with a file of ada's on the share."""
    machines.up_ok()
    machines.run_as("ada", "n1", "echo precious >/shared/home/ada/results")
    return machines


def left_over(cluster: ClusterUnderTest, node: str, rules: str) -> list[str]:
    """Return the rules that a machine breaks."""
    return [rule for rule in rules.split("\n") if rule and cluster.attempt(node, rule).returncode != 0]


def nodes_by_state(cluster: ClusterUnderTest) -> list[str]:
    return sorted(cluster.run("head", "sinfo -h -p rack -N -o '%N %T'").splitlines())


def both_idle(cluster: ClusterUnderTest) -> None:
    """Wait until both nodes are idle, after the last measurement's epilog."""
    eventually(lambda: nodes_by_state(cluster) == ["head idle", "n1 idle"], 60, "both nodes are idle")


@pytest.mark.proof
def test_a_service_of_the_head_node_that_fails_leaves_every_node_up_and_measured(machines: ClusterUnderTest) -> None:
    in_the_way = "/etc/ssh/ssh_host_ed25519_key-cert.pub/something"
    machines.run("head", f"mkdir -p {in_the_way}")
    (failure,) = machines.up().failures
    assert "tailrack: head: step head-services failed" in failure.message
    assert {"head-head", "n1-node", "validate-rack"} <= machines.touched()
    both_idle(machines)
    machines.run("head", f"rm -r {in_the_way.rpartition('/')[0]}")


def test_up_makes_a_cluster_of_machines_without_any_of_its_software(cluster: ClusterUnderTest) -> None:
    # As `make reap` does on a head node; here sudo asks for the password.
    assert over_ssh(cluster.deployment().made(), "n1", as_root("id", "-u")) == "0"
    both_idle(cluster)
    assert sorted(cluster.run_as("ada", "head", "srun -N2 hostname").split()) == ["head", "n1"]
    assert cluster.run_as("ada", "head", "cat results").strip() == "precious"
    assert cluster.deployment().outputs()["validation"]["rack"]["ranks"] == 2
    written = f"grep -rl '{SUDO_PASSWORD}' /var/log /var/lib/tailrack /home/admin /etc /run/log"
    assert cluster.run("n1", f"{written} || :; journalctl --no-pager | grep -c '{SUDO_PASSWORD}' || :").split() == ["0"]
    # The rules of a clean machine are broken now, so they mean something later.
    assert left_over(cluster, "n1", CLEAN_NODE) == CLEAN_NODE.split("\n")[1:-1]


def test_a_machine_that_answers_and_does_not_leave_is_not_taken_as_gone(cluster: ClusterUnderTest) -> None:
    hosts = cluster.config["tailrack:sites"][0]["hosts"]
    hosts.remove(next(host for host in hosts if host["name"] == "n1"))
    cluster.run("n1", "mv /etc/ssh/tailrack_leave_key /root/kept")
    (failure,) = cluster.up().failures
    cluster.run("n1", "mv /root/kept /etc/ssh/tailrack_leave_key")
    assert "and did not leave" in failure.message
    assert "next: run 'tailrack-leave' as root on n1" in failure.message


def test_a_machine_that_is_removed_from_the_config_leaves_and_is_clean(cluster: ClusterUnderTest) -> None:
    cluster.up_ok()
    eventually(lambda: nodes_by_state(cluster) == ["head idle"], 60, "the head node is left, and idle")
    assert cluster.attempt("head", "ls /etc/exports.d/*").returncode == 2
    assert "Clients =" not in cluster.run("head", "cat /etc/ganesha/ganesha.conf")
    eventually(lambda: left_over(cluster, "n1", CLEAN_NODE) == [], 60, "n1 is clean")
    assert cluster.run("head", "tailscale status --json | jq -r '.Peer // {} | .[].HostName'") == ""
    assert cluster.run_as("ada", "head", "cat results").strip() == "precious"
    assert cluster.run_as("ada", "head", "srun hostname").strip() == "head"


def test_destroy_leaves_the_machines_and_the_data_and_nothing_of_the_cluster(cluster: ClusterUnderTest) -> None:
    summary = cluster.deployment().destroy()
    assert summary.ok, summary.failures
    eventually(lambda: left_over(cluster, "head", CLEAN_HEAD) == [], 60, "the head node is clean")
    assert cluster.run("head", "cat /export/shared/home/ada/results").strip() == "precious"
    assert cluster.attempt("n1", "systemctl is-system-running").stdout.strip() in ("running", "degraded")
