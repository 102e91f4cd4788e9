"""Machines of several distributions in one cluster: what fits as it is, what is refused, and what one release mends.

Debian 12 has Slurm 22.05 and Open MPI 4, Debian 13 has 24.11 and 5, the next Debian 26.05 and 6. Every pair is in
tests/unit/components/roles/test_slurm_versions.py. The tests of each head node run in the order of this file.
"""

import pytest

from lab.debian import find_mirrors
from lab.distributions import OTHERS
from lab.errors import LabError
from lab.profiles.machine import Like
from tests.lab.cluster import ClusterUnderTest, MakeCluster, own_machine
from tests.lab.slurm_packages import OF_RELEASE, RELEASE, lay_out, packages, settings

# Images of three distributions, and a release that is built for two of them.
Make = MakeCluster


def cluster_of(make: Make, stack: str, head: Like, nodes: dict[str, Like]) -> ClusterUnderTest:
    """A stack of a head node that computes and others, each of a distribution, with nothing set up yet."""
    made = make(stack)
    hosts = [own_machine(made.lab, name, like=like) for name, like in {"head": head, **nodes}.items()]
    made.use_machines({"name": "rack", "hosts": hosts, "fabric": "tailnet"}, computes=True)
    return made


def systems_of_a_job(cluster: ClusterUnderTest, nodes: int) -> set[str]:
    """What the machines say that they are, from a job on all of them."""
    said = cluster.run_as("ada", "head", f"srun -N{nodes} bash -c '. /etc/os-release; echo $ID $VERSION_CODENAME'", 120)
    return set(said.splitlines())


@pytest.fixture(scope="module")
def of_trixie(make_cluster: Make) -> ClusterUnderTest:
    """A head node of Debian 13, and nodes that are older and newer."""
    return cluster_of(make_cluster, "p1", "", {"old": "bookworm", "new": "forky"})


@pytest.mark.timeout(1800)  # where no image of another distribution was made before
def test_nodes_that_are_too_old_or_too_new_are_refused_with_a_fitting_release(of_trixie: ClusterUnderTest) -> None:
    said = {failure.urn.rpartition("::")[2]: " ".join(failure.message.split()) for failure in of_trixie.up().failures}
    assert said.keys() == {"old-prepare", "new-prepare"}
    assert "Slurm 22.05 is too old: dynamic nodes need 23.11 or newer" in said["old-prepare"]
    assert f"set tailrack:slurm.release: {RELEASE}" in said["old-prepare"]
    assert "Slurm 26.05 is newer than the controller's 24.11" in said["new-prepare"]
    assert "set tailrack:slurm.release: 26.05." in said["new-prepare"]
    for node in ("old", "new"):
        assert of_trixie.attempt(node, "command -v slurmd munged").stdout == ""


@pytest.mark.timeout(9000)  # where nothing was built before
def test_at_one_release_a_job_runs_on_debian_12_and_13(of_trixie: ClusterUnderTest) -> None:
    of_trixie.config["tailrack:sites"][0]["hosts"].pop()
    of_trixie.config["tailrack:slurm"].update(settings())
    for distribution, node, place in (
        ("debian-13", "head", "/export/shared/slurm"),
        ("debian-12", "old", "/var/lib/tailrack/slurm-releases"),
    ):
        packages(distribution)
        lay_out(distribution, of_trixie.container(node), place)
    of_trixie.up_ok()
    for node in ("head", "old"):
        installed = of_trixie.run(node, "dpkg-query -W -f='${Version}' slurm-smd-slurmd")
        assert installed == OF_RELEASE
    assert systems_of_a_job(of_trixie, 2) == {"debian trixie", "debian bookworm"}


def test_nodes_that_do_not_speak_mpi_with_each_other_are_measured_without_it_and_the_report_says_why(
    of_trixie: ClusterUnderTest,
) -> None:
    result = of_trixie.deployment().outputs()["validation"]["rack"]
    assert result["backend"] == "tcp-cpu"
    assert result["rows"], result["reason"]
    assert "(4 with PMIx 4 on old; 5 with PMIx 5 on head): they were measured without MPI" in result["reason"]


@pytest.fixture(scope="module")
def of_forky(make_cluster: Make) -> ClusterUnderTest:
    """A head node of the next Debian and a node of Debian 13, each with its distribution's Slurm; nothing is set up."""
    return cluster_of(make_cluster, "p2", "forky", {"n1": ""})


@pytest.mark.timeout(1800)  # where no image of another distribution was made before
def test_a_head_node_with_an_incompatible_srun_rejects_an_older_node(of_forky: ClusterUnderTest) -> None:
    (failure,) = of_forky.up().failures
    assert failure.urn.endswith("::n1-prepare")
    said = " ".join(failure.message.split())
    assert "Slurm 24.11 is older than the controller's 26.05, whose srun reaches only nodes of its own release" in said
    assert "set tailrack:slurm.release: 26.05." in said
    # The lab's own Debian has the packages already.
    assert of_forky.attempt("n1", "systemctl is-active slurmd munge").stdout.split() == ["inactive", "inactive"]
    assert of_forky.run_as("ada", "head", "srun -n1 --mem=50 hostname") == "head\n"


def test_slurmctld_accepts_its_files_and_a_second_up_changes_nothing(of_forky: ClusterUnderTest) -> None:
    of_forky.config["tailrack:sites"][0]["hosts"].pop()
    of_forky.up_ok()
    of_forky.up_ok()
    assert of_forky.touched() == set()
    of_forky.run("head", "scontrol reconfigure")
    log = of_forky.run("head", "journalctl -b -u slurmctld -o cat --no-pager")
    assert [line for line in log.splitlines() if "glob" in line or '"Include" failed' in line] == []


def test_a_machine_of_ubuntu_joins(make_cluster: Make) -> None:
    try:
        find_mirrors(of=OTHERS["ubuntu-24.04"])
    except LabError as missing:
        pytest.skip(f"MACHINES OF UBUNTU ARE NOT TESTED: {missing}")
    cluster = cluster_of(make_cluster, "p3", "ubuntu-24.04", {"n1": "ubuntu-24.04"})
    cluster.up_ok()
    assert systems_of_a_job(cluster, 2) == {"ubuntu noble"}
