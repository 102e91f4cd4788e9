"""Jobs are held to what they asked for: cores, memory and GPUs, by cgroups."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.test_clustermax import audit_of
from tests.gpu.cluster import GpuCluster
from tests.gpu.machines import CGROUP, KEY, PLACE
from tests.lab.cluster import as_user, eventually
from tests.lab.test_slurm import TAKE_A_GIB

# The cores that a process may use, and the least limit of the cgroups that it is in, of bytes of memory.
LOOK = """python3 -c '
import os, pathlib
own = pathlib.Path("/sys/fs/cgroup" + open("/proc/self/cgroup").read().partition("::")[2].strip())
files = [folder / "memory.max" for folder in (own, *own.parents)]
limits = [file.read_text().strip() for file in files if file.exists()]
print(len(os.sched_getaffinity(0)), min(int(limit) for limit in limits if limit != "max"))'"""
SEEN = "env -u CUDA_VISIBLE_DEVICES gpus-seen"


@pytest.fixture(scope="module", autouse=True)
def confined(cluster: GpuCluster) -> None:
    """The cluster, on a machine that has cgroups to give its nodes."""
    given = (CGROUP / "cgroup.subtree_control").read_text()
    if not {"memory", "cpuset"} <= set(given.split()):
        pytest.skip(f"CONFINED JOBS ARE NOT TESTED: this machine gives others the cgroup controllers {given!r}")
    cluster.measured()


def seen_by(cluster: GpuCluster, words: str) -> dict[str, Any]:
    """What a job of ada's sees of c's GPUs, whatever CUDA_VISIBLE_DEVICES says."""
    seen: dict[str, Any] = json.loads(cluster.run_as("ada", "head", f"srun -w c -N1 -n1 {words} {SEEN}"))
    return seen


def test_a_job_is_held_to_its_cores_and_its_memory(cluster: GpuCluster) -> None:
    threads = json.loads(cluster.run("head", "scontrol show node a --json"))["nodes"][0]["threads"]
    threads_given, limit = cluster.run_as("ada", "head", f"srun -w a -n1 --mem=200M {LOOK}").split()
    assert (int(threads_given), int(limit)) == (threads, 200 * 2**20)


def test_a_job_that_takes_more_memory_than_it_was_given_is_ended(cluster: GpuCluster) -> None:
    greedy = cluster.attempt("head", as_user("ada", f"srun -w a -n1 --mem=200M {TAKE_A_GIB}"), limit=90)
    assert greedy.returncode not in (0, 124), greedy.stderr
    assert "oom" in greedy.stderr.lower(), greedy.stderr


@pytest.mark.usefixtures("real")
def test_outside_of_jobs_a_user_sees_every_gpu(cluster: GpuCluster) -> None:
    # What the tests below look with does see GPUs where nothing hides them.
    seen = json.loads(cluster.run("c", "runuser -u ada -- gpus-seen"))
    assert [bus.rpartition(":")[2] for bus in seen["cuda"]] == [
        gpu.bus.rpartition(":")[2] for gpu in cluster.machines["c"].gpus
    ]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("words", ["", "--gpus=0"])
def test_a_job_without_gpus_opens_none(cluster: GpuCluster, words: str) -> None:
    assert seen_by(cluster, words) == {"cuda": [], "files": []}


@pytest.mark.parametrize("count", [1, 2])
def test_a_job_opens_as_many_gpus_as_it_asked_for(cluster: GpuCluster, count: int) -> None:
    cluster.need(2)
    seen = seen_by(cluster, f"--gpus={count}")
    assert (len(seen["cuda"]), len(seen["files"])) == (count, count)


def test_two_jobs_at_once_have_different_gpus(cluster: GpuCluster) -> None:
    cluster.need(2)
    hold = "sbatch --parsable -w c -n1 --gpus=1 --output=held --wrap 'gpus-seen; sleep 300'"
    number = cluster.run_as("ada", "head", hold).strip()
    try:
        # The file is there when the job has begun.
        eventually(lambda: "cuda" in cluster.run_as("ada", "head", "cat held || true"), 30, "the first job looks")
        held = json.loads(cluster.run_as("ada", "head", "cat held"))
        (first,), (second,) = held["files"], seen_by(cluster, "--gpus=1")["files"]
        assert first != second
    finally:
        cluster.run("head", f"scancel {number}")


@pytest.mark.usefixtures("real")
def test_each_node_with_one_gpu_gives_the_one_that_it_has(cluster: GpuCluster) -> None:
    for node in ("a", "b"):
        (gpu,) = cluster.machines[node].gpus
        seen = json.loads(cluster.run_as("ada", "head", f"srun -w {node} -n1 --gpus=1 {SEEN}"))
        assert seen["files"] == [f"/dev/nvidia{gpu.number}"]
        assert [bus.rpartition(":")[2] for bus in seen["cuda"]] == [gpu.bus.rpartition(":")[2]]


def ssh(cluster: GpuCluster, node: str, command: str) -> subprocess.CompletedProcess[str]:
    """Log in to a node as ada, from the head node."""
    return cluster.attempt("head", as_user("ada", f"ssh -o BatchMode=yes {node} '{command}'"))


@pytest.fixture
def job_of_ada(cluster: GpuCluster) -> Iterator[str]:
    """The number of a job of ada's on a, of one core and no GPU."""
    number = cluster.run_as("ada", "head", "sbatch --parsable -w a -n1 --output=/dev/null --wrap 'sleep 300'").strip()
    state = f"squeue -h -j {number} -o %T"
    eventually(lambda: cluster.run("head", state).strip() == "RUNNING", 30, "the job runs")
    yield number
    cluster.run("head", f"scancel {number}")
    eventually(lambda: not cluster.run("head", "squeue -h").strip(), 30, "no jobs are left")


def test_a_user_without_a_job_on_a_node_is_refused_over_ssh(cluster: GpuCluster) -> None:
    refused = ssh(cluster, "a", "true")
    assert refused.returncode == 255
    assert "no active jobs on this node" in refused.stderr


def test_a_user_with_a_job_on_a_node_enters_its_cgroup_and_no_other_node(cluster: GpuCluster, job_of_ada: str) -> None:
    entered = ssh(cluster, "a", "cat /proc/self/cgroup; nproc; gpus-seen")
    assert entered.returncode == 0, entered.stderr
    cgroup, cores, *seen = entered.stdout.splitlines()
    assert f"/job_{job_of_ada}/" in cgroup
    assert cores == "1"
    assert not cluster.on_gpus or json.loads(seen[0]) == {"cuda": [], "files": []}
    assert ssh(cluster, "b", "true").returncode == 255


@pytest.mark.usefixtures("real")
def test_clustermaxs_audit_logs_in_from_one_node_of_its_job_to_another(cluster: GpuCluster) -> None:
    # The audit logs in from one node of its job to another.
    checks = audit_of(cluster, "salloc -Q -w a,b -N2 --exclusive --gpus-per-node=1")["checks"]
    (PLACE / "out" / "audit.json").write_text(json.dumps(checks, indent=1))
    found = {check["key"]: f"{check['status']} {check['observed']} {check['assessment']}" for check in checks}
    assert found["access.sshToComputeNodes"].startswith("pass "), found["access.sshToComputeNodes"]


def test_the_account_that_the_program_manages_machines_with_enters_without_a_job(cluster: GpuCluster) -> None:
    for name in ("a", "b", "c"):
        host = cluster.machines[name].host()
        options = ["-i", str(KEY), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"]
        words = ["ssh", *options, f"{host['user']}@{host['address']}", "sudo -n id -u"]
        entered = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30)
        assert entered.stdout == "0\n", entered.stderr
