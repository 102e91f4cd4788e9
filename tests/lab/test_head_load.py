"""Limits of users on a head node, as far as a container shows them: files, and a note that they have no effect there.

Containers of the lab have no controllers of cgroups. tests/machines/test_head_load.py shows the limits.
"""

import pytest

from tests.lab.cluster import ClusterUnderTest

UNITS = "/etc/systemd/system"
LIMITS = f"{UNITS}/user-.slice.d/tailrack.conf"
PROTECTION = f"{UNITS}/slurmctld.service.d/tailrack-protect.conf"


@pytest.fixture(scope="module")
def cluster(full: ClusterUnderTest) -> ClusterUnderTest:
    """The limits are on."""
    full.up_ok()
    return full


def notes(cluster: ClusterUnderTest) -> list[str]:
    return [note for note in cluster.deployment().outputs()["cluster"]["notes"] if "user_limits" in note]


def test_systemd_reads_the_limits_and_the_note_says_that_a_container_has_none(cluster: ClusterUnderTest) -> None:
    (note,) = notes(cluster)
    assert "One user can use up the memory and the processes of head, because systemd there controls no memory" in note
    shown = cluster.run("head", "systemctl show -P TasksMax -P MemorySwapMax -P CPUWeight user-6001.slice").split()
    assert sorted(shown) == ["0", "100", "4096"]
    assert cluster.run("head", "systemctl show -P MemoryMax user-0.slice") == "infinity\n"
    assert cluster.run("head", "systemctl show -P OOMScoreAdjust slurmctld") == "-900\n"
    assert cluster.run("head", "systemctl show -P NeedDaemonReload slurmctld munge tailscaled").split() == ["no"] * 3
    assert cluster.run_as("ada", "head", "cat /proc/self/oom_score_adj; srun -w a1 hostname") == "0\na1\n"
    assert cluster.attempt("a1", f"ls {LIMITS} {PROTECTION}").stdout == ""


def test_a_changed_limit_runs_one_step_and_restarts_no_daemon(cluster: ClusterUnderTest) -> None:
    daemons = "systemctl show -P MainPID slurmctld munge tailscaled"
    before = cluster.run("head", daemons)
    cluster.config["tailrack:head"]["user_limits"] = {"tasks": 500}
    cluster.up_ok()
    assert cluster.touched() == {"head-head"}
    assert cluster.run("head", "systemctl show -P TasksMax user-6001.slice") == "500\n"
    assert cluster.run("head", daemons) == before


def test_turned_off_no_user_has_a_limit_and_the_daemons_stay_protected(cluster: ClusterUnderTest) -> None:
    cluster.config["tailrack:head"]["user_limits"] = {"enabled": False}
    cluster.up_ok()
    assert notes(cluster) == []
    assert cluster.attempt("head", f"ls {LIMITS} {UNITS}/cron.service.d/tailrack.conf").stdout == ""
    assert cluster.run("head", "systemctl show -P MemorySwapMax user-6001.slice") == "infinity\n"
    assert cluster.run("head", f"ls {PROTECTION}") == f"{PROTECTION}\n"
