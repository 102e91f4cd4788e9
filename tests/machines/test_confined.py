"""Jobs have what they asked for and no more, by the kernel's cgroups; logins are part of a job or refused."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.gpu.test_confined import LOOK
from tests.lab.cluster import as_user
from tests.lab.test_slurm import TAKE_A_GIB
from tests.machines.cluster import MachineCluster

pytestmark = pytest.mark.short


@contextmanager
def working(cluster: MachineCluster, node: str) -> Iterator[str]:
    """A job of ada's on a node, of one core and 200 MB."""
    number = cluster.run_job(f"-w {node} -n1 --mem=200M --output=/dev/null --wrap 'sleep 3000'")
    try:
        # Slurm calls it running when it has a node, and that is before slurmd there has begun anything.
        at_work = "pgrep -u ada -x sleep"
        cluster.eventually(lambda: cluster.attempt(node, at_work).returncode == 0, 60, f"the job works on {node}")
        yield number
    finally:
        cluster.run("head", f"scancel {number}")
        cluster.eventually(lambda: cluster.run("head", "squeue -h") == "", 60, "no jobs are left")


@pytest.fixture
def job(cluster: MachineCluster) -> Iterator[str]:
    """A job of ada's on n1."""
    with working(cluster, "n1") as number:
        yield number


def ssh(cluster: MachineCluster, user: str, command: str, node: str = "n1") -> subprocess.CompletedProcess[str]:
    """Log in to a node as a user, from the head node."""
    return cluster.attempt("head", as_user(user, f"ssh -o BatchMode=yes {node} '{command}'"))


def too_much_is_ended_alone(cluster: MachineCluster, node: str, job: str) -> None:
    """Have a job take more memory than it was given, beside one that goes on."""
    greedy = cluster.attempt("head", as_user("ada", f"srun -w {node} -n1 --mem=200M {TAKE_A_GIB}"), 120)
    assert greedy.returncode not in (0, 124), greedy.stderr
    assert "oom" in greedy.stderr.lower(), greedy.stderr
    # Slurm has read it from the kernel, and the kernel has ended nothing else.
    assert "CONSTRAINT_MEMCG" in cluster.run(node, "journalctl -k -b --no-pager | grep oom-kill:")
    assert cluster.job_state(job) == "RUNNING"
    assert cluster.run(node, "systemctl is-active slurmd munge tailscaled").split() == ["active"] * 3


def has_what_it_asked_for(cluster: MachineCluster, node: str) -> None:
    """Have a job look at its cores and its memory, on a node of two cores."""
    assert cluster.run(node, "nproc") == "2\n"
    given = cluster.run_as("ada", "head", f"srun -w {node} -n1 --mem=200M {LOOK}", 90)
    assert given.split() == ["1", str(200 * 2**20)]


def no_login_without_a_job(cluster: MachineCluster, node: str) -> None:
    """Have a user log in who has no job there."""
    refused = ssh(cluster, "bob", "true", node)
    assert refused.returncode == 255
    assert "no active jobs on this node" in refused.stderr


def a_login_is_part_of_the_job(cluster: MachineCluster, node: str, job: str) -> None:
    """Have the user log in whose job it is."""
    entered = ssh(cluster, "ada", "cat /proc/self/cgroup; nproc", node)
    assert entered.returncode == 0, entered.stderr
    cgroup, cores = entered.stdout.splitlines()
    assert f"/job_{job}/" in cgroup
    assert cores == "1"


def test_a_job_that_takes_more_memory_than_it_was_given_is_ended_alone(cluster: MachineCluster, job: str) -> None:
    too_much_is_ended_alone(cluster, "n1", job)


def test_a_job_has_the_core_and_the_memory_that_it_asked_for(cluster: MachineCluster) -> None:
    has_what_it_asked_for(cluster, "n1")


def test_a_login_without_a_job_is_refused(cluster: MachineCluster) -> None:
    no_login_without_a_job(cluster, "n1")


def test_a_login_with_a_job_is_part_of_it(cluster: MachineCluster, job: str) -> None:
    a_login_is_part_of_the_job(cluster, "n1", job)
