"""A site that partition all leaves out: its nodes get only jobs that name its partition, and are measured as before.

Its node also registers fewer CPUs than its machine has, as one in a container with a limit does.
"""

import pytest

from tests.lab.cluster import ClusterUnderTest, as_user, eventually

UNIT = "/etc/systemd/system/slurmd.service.d/tailrack.conf"
KEEPALIVE = "keepalivetime=600,keepaliveinterval=60,keepaliveprobes=5"
ALL = "sinfo -h -N -p all -o %N"


@pytest.fixture(scope="module")
def apart(full: ClusterUnderTest) -> ClusterUnderTest:
    """A cluster whose site cloud-b is not in partition all, up."""
    full.config["tailrack:sites"][1]["in_all"] = False
    full.config["tailrack:slurm"]["settings"]["CommunicationParameters"] = KEEPALIVE
    full.up_ok()
    return full


def srun(cluster: ClusterUnderTest, options: str) -> str:
    """Run a job of ada's, and return its output or the error."""
    done = cluster.attempt("head", as_user("ada", f"srun --mem=50 {options} hostname"))
    return done.stdout + done.stderr


def test_partition_all_has_the_nodes_of_the_other_sites_only(apart: ClusterUnderTest) -> None:
    assert apart.run("head", ALL).split() == ["a1", "head"]
    assert apart.run("head", "sinfo -h -N -p cloud-b -o %N").split() == ["b1"]
    assert apart.run("head", "sinfo -h -p all -o %P").strip() == "all*"


def test_a_job_gets_the_site_only_by_its_partition(apart: ClusterUnderTest) -> None:
    assert srun(apart, "-p cloud-b") == "b1\n"
    assert "node b1 is not in partition all; use -p cloud-b" in srun(apart, "-w b1 --immediate=5")
    too_wide = srun(apart, "-N3 --immediate=5")
    assert "the job asks for 3 nodes; no site it may use has more than 2; all sites together have 2" in too_wide


def test_the_site_is_measured_and_so_is_the_way_between_sites(apart: ClusterUnderTest) -> None:
    validation = apart.deployment().outputs()["validation"]
    assert {"cloud-a", "cross-site"} <= validation.keys()
    assert validation["cross-site"]["rows"], validation["cross-site"]


def test_the_watchdog_of_the_site_reads_its_nodes_state(apart: ClusterUnderTest) -> None:
    eventually(lambda: apart.run("b1", "sinfo -h -n b1 -o %t").split() == ["idle"], 60, "b1 reads that it is idle")


def test_slurm_takes_the_keepalive_of_the_config(apart: ClusterUnderTest) -> None:
    parameters = f"NoInAddrAny,NoCtldInAddrAny,block_null_hash,{KEEPALIVE}"
    assert parameters in apart.run("head", "scontrol show config | grep ^CommunicationParameters")
    # grep fails where the journal has no such line.
    assert "keepalive" not in apart.run("head", "journalctl -u slurmctld --no-pager | grep invalid || true")


def restart_slurmd(cluster: ClusterUnderTest, before: str) -> None:
    """Change b1's unit and register it again."""
    cluster.run("b1", f"systemctl stop slurmd; {before}; systemctl daemon-reload")
    cluster.run("head", "scontrol delete nodename=b1")
    cluster.run("b1", "systemctl start slurmd")
    eventually(lambda: cluster.run("head", "sinfo -h -n b1 -o %t").strip() == "idle", 60, "b1 is usable")


def test_a_node_that_registers_one_cpu_gives_jobs_one(apart: ClusterUnderTest) -> None:
    assert "CPUs=" not in apart.run("b1", f"cat {UNIT}"), "the lab limits no container"
    try:
        restart_slurmd(apart, f"cp {UNIT} /root/unit; sed -i 's/--conf \"/&CPUs=1 /' {UNIT}")
        assert apart.run("head", "sinfo -h -n b1 -o %c").strip() == "1"
        assert srun(apart, "-p cloud-b -n1") == "b1\n"
        assert "configuration is not available" in srun(apart, "-p cloud-b -n2")
    finally:
        restart_slurmd(apart, f"cp /root/unit {UNIT}")


def test_the_site_comes_back_into_all(apart: ClusterUnderTest) -> None:
    del apart.config["tailrack:sites"][1]["in_all"]
    apart.up_ok()
    assert apart.run("head", ALL).split() == ["a1", "b1", "head"]
    assert "tailrack_measure" not in apart.run("head", "cat /etc/slurm/slurm.conf")
    assert srun(apart, "-w b1") == "b1\n"
