"""One Slurm release in the place of the distribution's: what goes on meanwhile, what is refused, what is left.

A build takes 20 minutes on two cores, so what comes of it is kept (slurm_packages.py).
The tests share a head node and a node and run in the order of this file.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually, own_machine
from tests.lab.slurm_packages import OF_RELEASE, RELEASE, in_turn, keep, lay_out, settings

SHARE = "/export/shared/slurm"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str], ClusterUnderTest]) -> ClusterUnderTest:
    """A head node and a node with Debian's Slurm."""
    made = make_cluster("r1")
    hosts = [own_machine(made.lab, name) for name in ("head", "n1")]
    made.config["tailrack:head"] = {"name": "head", "site": "rack"}
    made.config["tailrack:sites"] = [{"name": "rack", "kind": "hosts", "hosts": hosts}]
    made.config["tailrack:tailnet"]["control_url"] = "http://control.lab:8080"
    made.config["tailrack:validation"]["floors_gb_per_s"] = {}
    made.up_ok()
    return made


def version(cluster: ClusterUnderTest, node: str, package: str) -> str:
    """The version of a package that is installed; empty where it is not."""
    shown = cluster.attempt(node, f"dpkg-query -W -f='${{db:Status-Status}} ${{Version}}' {package}").stdout
    return shown.removeprefix("installed ") if shown.startswith("installed ") else ""


@pytest.mark.timeout(4200)  # where nothing was built before
def test_a_release_takes_the_distributions_place_while_a_job_and_its_array_run(cluster: ClusterUnderTest) -> None:
    assert version(cluster, "n1", "slurmd").startswith(f"{RELEASE}-4")
    running = "sleep 30; echo done >~/ended-$SLURM_JOB_ID"
    cluster.config["tailrack:slurm"].update(settings())
    with in_turn("debian-13") as kept:
        cluster.run_as("ada", "head", f"sbatch -n1 --mem=50 -o /dev/null --wrap '{running}'")
        cluster.run_as("ada", "head", f"sbatch -n1 --mem=50 -o /dev/null --array=1-2 --wrap '{running}'")
        eventually(lambda: " R " in cluster.run("head", "squeue -h -o ' %t '"), 30, "a job runs")
        if kept.is_dir():
            lay_out(kept, cluster.container("head"), SHARE)
        cluster.up_ok()
        if not kept.is_dir():
            keep(f"{cluster.container('head')}:{SHARE}/{kept.name}", kept)
    for node, package in (("head", "slurmctld"), ("n1", "slurmd")):
        assert version(cluster, node, f"slurm-smd-{package}") == OF_RELEASE
        assert version(cluster, node, package) == version(cluster, node, "slurm-wlm-basic-plugins") == ""
    eventually(lambda: cluster.run("head", "squeue -h") == "", 120, "all jobs have ended")
    # Each once: none was requeued, and none was lost.
    assert cluster.run_as("ada", "head", "cat ended-*").split() == ["done"] * 3
    assert cluster.run_as("ada", "head", "srun hostname").strip() == "n1"


def test_a_node_has_what_the_head_node_built(cluster: ClusterUnderTest) -> None:
    assert "building" not in cluster.run("n1", "cat /var/log/tailrack/n1-node.log")
    for node in ("head", "n1"):
        assert cluster.attempt(node, "ls -d /var/lib/tailrack/slurm-build").returncode == 2
        assert cluster.attempt(node, "getent passwd tailrack-build").returncode == 2


def test_mpi_finds_pmix_as_before(cluster: ClusterUnderTest) -> None:
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    said = cluster.run_as("ada", "head", f'srun --mpi=pmix -n2 --mem=200 python3 -c "{program}"', 120)
    assert said.split() == ["2", "2"]


def test_no_upgrade_brings_the_distributions_slurm_back(cluster: ClusterUnderTest) -> None:
    cluster.run("n1", "apt-get update", 120)
    assert "slurm" not in cluster.run("n1", "apt-get -s dist-upgrade | grep -E '^(Inst|Remv)' || true", 120)
    assert cluster.attempt("n1", "apt-get -s install -y slurmd", 120).returncode == 100


def test_a_second_up_changes_nothing(cluster: ClusterUnderTest) -> None:
    cluster.up_ok()
    assert cluster.touched() == set()


def test_a_way_back_is_refused_before_anything_is_changed(cluster: ClusterUnderTest) -> None:
    before = dict(cluster.config["tailrack:slurm"])
    cluster.config["tailrack:slurm"]["release"] = "24.05.8"
    (failure,) = cluster.up().failures
    assert "no release reads what a newer one has written" in failure.message
    for key in settings():
        del cluster.config["tailrack:slurm"][key]
    failures = cluster.up().failures
    assert any("write tailrack:slurm.release again" in failure.message for failure in failures)
    cluster.config["tailrack:slurm"] = before
    assert cluster.run_as("ada", "head", "srun hostname").strip() == "n1"
    cluster.up_ok()


def test_who_leaves_has_its_package_manager_back(cluster: ClusterUnderTest) -> None:
    summary = cluster.deployment().destroy()
    assert summary.ok, summary.failures
    nodes = ("head", "n1")
    eventually(lambda: not any(cluster.run(node, "apt-mark showhold") for node in nodes), 20, "nothing is held")
    for node in nodes:
        assert cluster.attempt(node, "ls /etc/apt/preferences.d/tailrack-slurm").returncode == 2
