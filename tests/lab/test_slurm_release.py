"""One Slurm release in the place of the distribution's: what goes on meanwhile, what is refused, what is left.

A build takes minutes, so what comes of it is kept (slurm_packages.py).
The tests share a head node and two nodes and run in the order of this file.
"""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine
from tests.lab.slurm_packages import OF_RELEASE, RELEASE, in_turn, keep, kind_of, lay_out, settings

MACHINE = "debian-13-amd64"
KIND = kind_of("debian-13")
SHARE = "/export/shared/slurm"
NODES = ("n1", "n2")
# A folder of ready packages of a newer release for Debian 13, in the place of those below: docs/day-2.md.
PACKAGES = os.environ.get("TAILRACK_SLURM_PACKAGES", "")
NEXT = next(Path(PACKAGES).glob("*/slurm-smd_*")).name.split("_")[1].split("-")[0] if PACKAGES else "24.11.6"
READY = "/srv/slurm-packages"
# Jobs of both nodes, one after the other, from before a change to after it; each starts its step by srun.
ONE_AFTER_THE_OTHER = """number=0
until [ -e ~/enough ]; do
    number=$((number + 1))
    until sbatch -Q -J both -N2 -n2 --mem=50 -o ~/both-$number --wrap 'srun hostname' 2>>~/refused; do sleep 1; done
    while [ -n "$(squeue -h -n both)" ]; do sleep 1; done
done
echo $number >~/submitted
"""
# Debian has the source of one release alone. So these packages have its programs, which call themselves by a number
# that is as long: they show in which order machines get a release and what jobs see of it, not how two releases speak.
AS_NEXT = f"""set -e
rm -rf {READY}; mkdir -p {READY}/{MACHINE}; cd "$(mktemp -d)"
for deb in {SHARE}/{KIND}/*.deb; do
    rm -rf p; dpkg-deb -R "$deb" p
    grep -rlZF {RELEASE} p | LC_ALL=C xargs -0 sed -i 's/{RELEASE.replace(".", "[.]")}/{NEXT}/g'
    dpkg-deb -Zgzip --root-owner-group -b p {READY}/{MACHINE} >&2
done
cd {READY}; sha256sum */*.deb >SHA256SUMS; sha256sum <SHA256SUMS
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A head node and two nodes with Debian's Slurm."""
    made = make_cluster("release")
    hosts = [own_machine(made.lab, name) for name in ("head", *NODES)]
    made.use_machines({"name": "rack", "hosts": hosts})
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
        eventually(lambda: " R " in cluster.run("head", "squeue -h -o ' %t '"), 60, "a job runs")
        if kept.is_dir():
            lay_out("debian-13", cluster.container("head"), SHARE)
        cluster.up_ok()
        if not kept.is_dir():
            keep(f"{cluster.container('head')}:{SHARE}/{KIND}", kept)
    for node, package in (("head", "slurmctld"), *((node, "slurmd") for node in NODES)):
        assert version(cluster, node, f"slurm-smd-{package}") == OF_RELEASE
        assert version(cluster, node, package) == version(cluster, node, "slurm-wlm-basic-plugins") == ""
    eventually(lambda: cluster.run("head", "squeue -h") == "", 120, "all jobs have ended")
    # Each once: none was requeued, and none was lost.
    assert cluster.run_as("ada", "head", "cat ended-*").split() == ["done"] * 3
    assert cluster.run_as("ada", "head", "srun hostname").strip() in NODES


def test_a_node_runs_the_packages_that_the_head_node_built(cluster: ClusterUnderTest) -> None:
    for node in NODES:
        assert "building" not in cluster.run(node, f"cat /var/log/tailrack/{node}-node.log")
    for node in ("head", *NODES):
        assert cluster.attempt(node, "ls -d /var/lib/tailrack/slurm-build").returncode == 2
        assert cluster.attempt(node, "getent passwd tailrack-build").returncode == 2


def test_mpi_finds_pmix_as_before(cluster: ClusterUnderTest) -> None:
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"
    said = cluster.run_as("ada", "head", f'srun --mpi=pmix -n2 --mem=200 python3 -c "{program}"', 120)
    assert said.split() == ["2", "2"]


def test_no_upgrade_brings_the_distributions_slurm_back(cluster: ClusterUnderTest) -> None:
    cluster.run("n1", "apt-get update", 120)
    would = cluster.run("n1", "apt-get -s dist-upgrade", 120).splitlines()
    assert [line for line in would if line.startswith(("Inst", "Remv")) and "slurm" in line] == []
    assert cluster.attempt("n1", "apt-get -s install -y slurmd", 120).returncode == 100


def away(cluster: ClusterUnderTest, node: str) -> tuple[int, int]:
    """When slurmd of a node ended last and when it was back, in microseconds of the clock that all nodes share."""
    shown = cluster.run(
        node, "systemctl show --value -p InactiveEnterTimestampMonotonic,ActiveEnterTimestampMonotonic slurmd"
    )
    ended, back = sorted(int(each) for each in shown.split())
    return ended, back


def test_nodes_get_another_release_one_by_one_from_ready_packages_while_a_job_and_its_array_run(
    cluster: ClusterUnderTest,
) -> None:
    if PACKAGES:
        subprocess.run(["docker", "cp", PACKAGES, f"{cluster.container('head')}:{READY}"], check=True)
        of_list = cluster.run("head", f"chown -R root:root {READY}; sha256sum <{READY}/SHA256SUMS").split()[0]
    else:
        of_list = cluster.run("head", AS_NEXT, 120).split()[0]
    # A core of each node is left for jobs of both: the array has one task after the other.
    running = (
        "-J next --mem=50 -o /dev/null --wrap 'until [ -e ~/go ]; do sleep 1; done; echo done >~/next-$SLURM_JOB_ID'"
    )
    cluster.run_as("ada", "head", f"sbatch -n1 -w n1 {running}")
    cluster.run_as("ada", "head", f"sbatch -n1 -w n2 --array=1-2%1 {running}")
    at_work = "squeue -h -n next -o '%t %r' | sort"
    at_once = ["PD JobArrayTaskLimit", "R None", "R None"]
    eventually(lambda: cluster.run("head", at_work).splitlines() == at_once, 60, "a job and a part of the array run")
    slurm = cluster.config["tailrack:slurm"]
    for key in settings():
        del slurm[key]
    slurm.update(release=NEXT, release_packages=READY, release_packages_sha256=of_list)
    stream = shlex.quote(ONE_AFTER_THE_OTHER)
    cluster.run_as("ada", "head", f"bash -c {stream} >/dev/null 2>&1 </dev/null &")
    cluster.up_ok()
    cluster.run_as("ada", "head", "touch enough")
    submitted = "cat /shared/home/ada/submitted"
    # A job that ends while its slurmd restarts stays COMPLETING until slurmctld repeats the message: KillWait plus
    # twice MessageTimeout later, at its next purge of old jobs (_list_find_job_old in Slurm's job_mgr.c).
    eventually(lambda: cluster.attempt("head", submitted).returncode == 0, 180, "the last of ada's jobs has ended")
    assert cluster.run("head", at_work).splitlines() == at_once
    (_, first_back), (second_ended, _) = sorted(away(cluster, node) for node in NODES)
    assert first_back < second_ended
    assert cluster.run("head", "sinfo -h -N -p all -o '%N %v'").split() == ["n1", NEXT, "n2", NEXT]
    assert "No reservations" in cluster.run("head", "scontrol show reservation")
    cluster.run_as("ada", "head", "touch go")
    eventually(lambda: cluster.run("head", "squeue -h") == "", 120, "all jobs have ended")
    assert cluster.run_as("ada", "head", "cat next-*").split() == ["done"] * 3
    # No step of theirs was sent to a node that does not understand it. A step that a running job begins in the seconds
    # in which slurmctld is away fails, whatever the release.
    said = cluster.run_as("ada", "head", "cat both-*")
    without = said.count("Unable to confirm allocation")
    assert "launch failed" not in said
    jobs = int(cluster.run("head", submitted)) - without
    assert [said.split().count(node) for node in NODES] == [jobs, jobs]
    assert without <= 1
    cluster.run("head", f"test -s /var/lib/tailrack/slurm/state-before-{NEXT}.tar")


def test_a_second_up_changes_nothing(cluster: ClusterUnderTest) -> None:
    cluster.up_ok()
    assert cluster.touched() == set()


def test_a_way_back_is_refused_before_anything_is_changed(cluster: ClusterUnderTest) -> None:
    before = dict(cluster.config["tailrack:slurm"])
    cluster.config["tailrack:slurm"]["release"] = RELEASE
    (failure,) = cluster.up().failures
    assert "cannot read the newer release's state" in failure.message
    for key in [key for key in before if key.startswith("release")]:
        del cluster.config["tailrack:slurm"][key]
    failures = cluster.up().failures
    assert any("set tailrack:slurm.release again" in failure.message for failure in failures)
    cluster.config["tailrack:slurm"] = before
    assert cluster.run_as("ada", "head", "srun hostname").strip() in NODES
    cluster.up_ok()


def test_a_removed_node_regains_its_package_manager(cluster: ClusterUnderTest) -> None:
    summary = cluster.deployment().destroy()
    assert summary.ok, "\n".join(failure.message[-3000:] for failure in summary.failures)
    nodes = ("head", *NODES)
    eventually(lambda: not any(cluster.run(node, "apt-mark showhold") for node in nodes), 60, "nothing is held")
    for node in nodes:
        assert cluster.attempt(node, "ls /etc/apt/preferences.d/tailrack-slurm").returncode == 2
