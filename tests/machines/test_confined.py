"""Jobs have what they asked for and no more, by the kernel's cgroups; logins are part of a job or refused."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.gpu.test_confined import LOOK
from tests.lab.cluster import as_user
from tests.lab.test_slurm import TAKE_A_GIB
from tests.machines.cluster import MachineCluster

pytestmark = pytest.mark.short


@pytest.fixture
def job(cluster: MachineCluster) -> Iterator[str]:
    """A job of ada's on n1, of one core and 200 MB."""
    number = cluster.submit("-w n1 -n1 --mem=200M --output=/dev/null --wrap 'sleep 3000'")
    yield number
    cluster.run("head", f"scancel {number}")
    cluster.eventually(lambda: cluster.run("head", "squeue -h") == "", 60, "no jobs are left")


def ssh(cluster: MachineCluster, user: str, command: str) -> subprocess.CompletedProcess[str]:
    """Log in to n1 as a user, from the head node."""
    return cluster.attempt("head", as_user(user, f"ssh -o BatchMode=yes n1 '{command}'"))


def test_a_job_that_takes_more_memory_than_it_was_given_is_ended_alone(cluster: MachineCluster, job: str) -> None:
    greedy = cluster.attempt("head", as_user("ada", f"srun -w n1 -n1 --mem=200M {TAKE_A_GIB}"), 120)
    assert greedy.returncode not in (0, 124), greedy.stderr
    assert "oom" in greedy.stderr.lower(), greedy.stderr
    # Slurm has read it from the kernel, and the kernel has ended nothing else.
    assert "CONSTRAINT_MEMCG" in cluster.run("n1", "journalctl -k -b --no-pager | grep oom-kill:")
    assert cluster.job_state(job) == "RUNNING"
    assert cluster.run("n1", "systemctl is-active slurmd munge tailscaled").split() == ["active"] * 3


def test_a_job_has_the_core_and_the_memory_that_it_asked_for(cluster: MachineCluster) -> None:
    assert cluster.run("n1", "nproc") == "2\n"
    given = cluster.run_as("ada", "head", f"srun -w n1 -n1 --mem=200M {LOOK}", 90)
    assert given.split() == ["1", str(200 * 2**20)]


def test_a_login_without_a_job_is_refused(cluster: MachineCluster) -> None:
    refused = ssh(cluster, "bob", "true")
    assert refused.returncode == 255
    assert "no active jobs on this node" in refused.stderr


def test_a_login_with_a_job_is_part_of_it(cluster: MachineCluster, job: str) -> None:
    entered = ssh(cluster, "ada", "cat /proc/self/cgroup; nproc")
    assert entered.returncode == 0, entered.stderr
    cgroup, cores = entered.stdout.splitlines()
    assert f"/job_{job}/" in cgroup
    assert cores == "1"
