"""A node of Debian 12, with its own kernel and systemd, at one Slurm release with a head node of Debian 13.

A cluster of these two alone: the release takes the place of Debian's Slurm everywhere, and the others show Debian's.
Both get it from ready packages, so nothing is built in a machine.
"""

import pytest

from tests.lab.slurm_packages import LIKES, OF_RELEASE, RELEASE, lay_out_ready
from tests.machines.cluster import MachineCluster
from tests.machines.machines import Machine, boot
from tests.machines.test_confined import (
    a_login_is_part_of_the_job,
    has_what_it_asked_for,
    no_login_without_a_job,
    too_much_is_ended_alone,
    working,
)
from tests.machines.test_leaving import ALLOWED, leaves_as_they_were
from tests.machines.test_reboot import works

ON = ("head", "n3")
READY = "/var/tmp/slurm-packages"  # noqa: S108 - a machine of the tests' own
# Packages stay, and the machine says which: Slurm's own have come, and on the head node Debian's have gone for them.
OF_PACKAGES = [
    r"package: (lib)?(slurm|pam-slurm)",
    r"unit file: slurm\w*\.service ",
    r"/etc/(default|init\.d|alternatives)/slurm",
    r"path: (/etc/slurm|/etc/slurm/plugstack\.conf\.d|/var/lib/slurm/(checkpoint|slurmd)) d ",
    r"/etc/ld\.so\.cache$",
    # Debian's packages make the account, and Slurm's do not; it stays as they do.
    r"account: (group )?slurm:|file: \S+ /etc/(passwd|group|shadow|gshadow)$",
]


@pytest.fixture(scope="module", autouse=True)
def older(cluster: MachineCluster, machines: dict[str, Machine], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both are on, with nothing of a cluster; ready packages lie on the head node, and the config names them."""
    ready = tmp_path_factory.mktemp("slurm")
    of_list = lay_out_ready(ready)
    if of_list is None:
        missing = f".venv/bin/python -m tests.lab.slurm_packages {' '.join(LIKES)}"
        pytest.skip(f"A MACHINE OF DEBIAN 12 IS NOT TESTED: there are no packages of Slurm {RELEASE} yet: {missing}")
    boot([machines[name] for name in ON])
    for name in ON:
        cluster.note_state(name)
    machines["head"].bring(ready, READY)
    cluster.config["tailrack:slurm"].update(release=RELEASE, release_packages=READY, release_packages_sha256=of_list)
    cluster.have("n3")


def test_at_one_release_a_node_of_debian_12_runs_a_job_on_its_own_kernel(cluster: MachineCluster) -> None:
    cluster.up_ok()
    for name, package in (("head", "slurmctld"), ("n3", "slurmd")):
        assert cluster.run(name, f"dpkg-query -W -f='${{Version}}' slurm-smd-{package}") == OF_RELEASE
    said = cluster.run_as("ada", "head", "srun bash -c '. /etc/os-release; hostname; echo $VERSION_CODENAME; uname -r'")
    node, release, kernel = said.split()
    assert (node, release) == ("n3", "bookworm")
    assert kernel.startswith("6.1.")


def test_a_second_up_changes_nothing(cluster: MachineCluster) -> None:
    cluster.up_ok()
    assert cluster.touched() == set()


def test_its_jobs_are_confined_as_those_of_debian_13(cluster: MachineCluster) -> None:
    has_what_it_asked_for(cluster, "n3")
    no_login_without_a_job(cluster, "n3")
    with working(cluster, "n3") as job:
        a_login_is_part_of_the_job(cluster, "n3", job)
        too_much_is_ended_alone(cluster, "n3", job)


def test_it_has_its_place_and_the_share_again_when_it_has_rebooted(cluster: MachineCluster) -> None:
    cluster.run_as("ada", "n3", "echo precious >results")
    cluster.machines["n3"].reboot()
    works(cluster, "n3")
    assert cluster.run("n3", "systemctl --failed --no-legend") == ""
    assert "network-pre.target" in cluster.run("n3", "systemctl show -P Before tailrack-firewall.service").split()


def test_down_leaves_both_as_they_were_but_for_slurms_packages(cluster: MachineCluster) -> None:
    leaves_as_they_were(cluster, ON, [*ALLOWED, *OF_PACKAGES])
    assert cluster.run("n3", "apt-mark showhold") == ""
    assert "slurm-smd-slurmd" in cluster.run("n3", "grep 'apt-get autoremove --purge' /var/log/tailrack/left")
