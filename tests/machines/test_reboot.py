"""A node that reboots, and a head node that reboots or loses its power, are back by themselves."""

from collections.abc import Iterator

import pytest

from tests.machines.cluster import MachineCluster

# A line a second, to the share; one that began anew would say 1 again.
COUNT = "n=0; while [ ! -e enough ]; do echo $((n += 1)); sleep 1; done"


def counted(cluster: MachineCluster) -> list[str]:
    """What the job has written, as it is on the head node's disk; nothing while that is away."""
    return cluster.attempt("head", "cat /export/shared/home/ada/counted").stdout.split()


@pytest.fixture
def counting(cluster: MachineCluster) -> Iterator[str]:
    """A job on n1 that counts, and is in what slurmctld has saved."""
    job = cluster.run_job(f"-w n1 -n1 --mem=100 --output=counted --wrap '{COUNT}'")
    cluster.eventually(lambda: len(counted(cluster)) > 3, 60, "the job counts")
    saved = "[ /var/lib/slurm/slurmctld/job_state -nt /run/counts ]"
    cluster.run("head", "touch /run/counts")
    cluster.eventually(lambda: cluster.attempt("head", saved).returncode == 0, 60, "slurmctld has saved the job")
    yield job
    cluster.run("head", f"rm -f /run/counts /export/shared/home/ada/{{enough,counted}}; scancel {job}")


def goes_on(cluster: MachineCluster, job: str) -> None:
    """Wait until a job that counts goes on; end it and hold what it has written against each number once."""
    before = len(counted(cluster))
    cluster.eventually(lambda: len(counted(cluster)) > before + 3, 180, "the job counts on")
    assert cluster.shown(f"job {job}", "Restarts") == "0"
    cluster.run_as("ada", "head", "touch enough")
    cluster.eventually(lambda: cluster.job_state(job) == "COMPLETED", 120, "the job has ended")
    numbers = counted(cluster)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


def works(cluster: MachineCluster, node: str = "n1") -> None:
    """Wait until the node has work to do, and does it with the share."""
    cluster.eventually(lambda: cluster.node_state(node) == "IDLE", 120, f"{node} is idle")
    done = cluster.run_as("ada", "head", f"srun -w {node} bash -c 'hostname; cat results'", 120)
    assert done.split() == [node, "precious"]


@pytest.mark.short
def test_a_node_that_reboots_has_its_place_and_the_share_again(cluster: MachineCluster) -> None:
    cluster.run_as("ada", "head", "echo precious >results")
    cluster.machines["n1"].reboot()
    works(cluster)
    assert cluster.run("n1", "systemctl --failed --no-legend") == ""


@pytest.mark.short
def test_ports_are_closed_before_a_node_has_a_network(cluster: MachineCluster) -> None:
    order = cluster.run("n1", "systemctl show -P Before tailrack-firewall.service").split()
    assert "network-pre.target" in order
    assert cluster.run("n1", "systemctl is-active tailrack-firewall.service") == "active\n"
    assert "tailscale0" in cluster.run("n1", "nft list table inet tailrack")


def test_a_head_node_that_reboots_is_found_again_and_its_job_goes_on(cluster: MachineCluster, counting: str) -> None:
    cluster.machines["head"].reboot()
    goes_on(cluster, counting)
    works(cluster)
    assert cluster.run("head", "systemctl --failed --no-legend") == ""


def test_a_head_node_that_loses_power_during_a_job_loses_no_line_of_it(cluster: MachineCluster, counting: str) -> None:
    head = cluster.machines["head"]
    head.cut_power()
    head.start()
    head.wait()
    goes_on(cluster, counting)
    works(cluster)
