"""The jobs of examples/jobs, submitted by a user as they are."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually

JOBS = Path(__file__).parents[2] / "examples" / "jobs"


@contextmanager
def examples(cluster: ClusterUnderTest) -> Iterator[None]:
    """Put the examples into a folder of ada's home for a while."""
    cluster.give("ada", JOBS)
    yield
    cluster.run("head", "scancel -u ada")
    eventually(lambda: not cluster.run("head", "squeue -h"), 60, "no job is left")
    cluster.run_as("ada", "head", "rm -rf ~/jobs")


@pytest.fixture(scope="module")
def there(cluster: ClusterUnderTest) -> Iterator[ClusterUnderTest]:
    """The examples are in a folder of ada's home."""
    with examples(cluster):
        yield cluster


def test_a_task_runs_on_each_of_two_nodes(there: ClusterUnderTest) -> None:
    told = re.findall(r"task (\d) of 2 on (\w+), \d+ CPUs", there.ended("jobs", "cpu.sh"))
    assert sorted(told) in ([("0", "a1"), ("1", "head")], [("0", "head"), ("1", "a1")])


def test_the_tasks_of_an_array_each_have_their_input_and_their_output(there: ClusterUnderTest) -> None:
    there.run_as("ada", "head", "cd jobs && sbatch array.sh")
    eventually(lambda: not there.run("head", "squeue -h -u ada"), 90, "no task is left")
    told = there.run_as("ada", "head", "cd jobs && cat array-*_[0-3].out")
    assert re.findall(r"task (\d) works on (\w+)", told) == [
        ("0", "north"), ("1", "east"), ("2", "south"), ("3", "west")
    ]  # fmt: skip


def test_jobs_of_a_chain_run_one_after_the_other(there: ClusterUnderTest) -> None:
    there.run_as("ada", "head", "cd jobs && bash chain.sh")
    lines = ["prepared", "worked", "cleaned"]
    out = "cat /shared/home/ada/jobs/chain.out"
    eventually(lambda: there.attempt("head", out).stdout.splitlines() == lines, 90, "all three have run in their order")


def test_a_job_over_two_sites_speaks_over_the_tailnet(there: ClusterUnderTest) -> None:
    told = re.findall(r"(\w+) speaks over (\w+)", there.ended("jobs", "sites.sh"))
    assert sorted(told) == [("a1", "tailscale0"), ("b1", "tailscale0"), ("head", "tailscale0")]


@pytest.mark.parametrize("script", ["mpi_srun.sh", "mpi_mpirun.sh"])
def test_the_ranks_of_an_mpi_job_know_of_each_other(there: ClusterUnderTest, script: str) -> None:
    told = re.findall(r"rank (\d) of 2 on (\w+): the sum is 1", there.ended("jobs", script))
    assert {rank for rank, _ in told} == {"0", "1"}
    assert {node for _, node in told} == {"head", "a1"}


def test_a_shell_on_a_node_has_a_terminal(there: ClusterUnderTest) -> None:
    command = "script -qec 'srun --pty bash -c \"tty; echo on \\$SLURMD_NODENAME\"' /dev/null </dev/null"
    assert re.search(r"/dev/pts/\d+\s+on (head|a1|b1)", there.run_as("ada", "head", command))


def test_a_job_that_went_back_to_the_queue_goes_on_at_its_checkpoint(there: ClusterUnderTest) -> None:
    job = there.run_as("ada", "head", "cd jobs && STEPS=8 sbatch --parsable --output=kept checkpoint.sh").strip()
    state, out = f"cat /shared/home/ada/jobs/checkpoint-{job}", "cat /shared/home/ada/jobs/kept"
    eventually(lambda: int(there.attempt("head", state).stdout or 0) >= 3, 60, "some of the work is done")
    there.run_as("ada", "head", f"scontrol requeue {job}")

    # Slurm would let it wait for two minutes. slurmd refuses a start in the second in which it killed the job.
    soon = f"scontrol update jobid={job} starttime=now+3"
    eventually(lambda: there.attempt("head", soon).returncode == 0, 60, "it is in the queue")
    eventually(lambda: "done after 8 steps" in there.attempt("head", out).stdout, 90, "the job is done")
    begun = re.findall(r"start (\d) begins at step (\d)", there.run("head", out))
    assert [start for start, _ in begun] == ["0", "1"]
    assert begun[0][1] == "0"
    assert int(begun[1][1]) >= 3
