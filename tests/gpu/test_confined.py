"""Jobs are held to what they asked for: cores, memory and GPUs, by cgroups."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gpu.cluster import GpuCluster
from tests.gpu.machines import CGROUP
from tests.lab.cluster import SMALL_MEASUREMENT, as_user, eventually
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
    """All nodes, on a machine that has cgroups to give them."""
    given = (CGROUP / "cgroup.subtree_control").read_text()
    if not {"memory", "cpuset"} <= set(given.split()):
        pytest.skip(f"CONFINED JOBS ARE NOT TESTED: this machine gives others the cgroup controllers {given!r}")
    cluster.has("a", "b", "c", **SMALL_MEASUREMENT)


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


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("count", [1, 2])
def test_a_job_opens_as_many_gpus_as_it_asked_for(cluster: GpuCluster, count: int) -> None:
    seen = seen_by(cluster, f"--gpus={count}")
    assert (len(seen["cuda"]), len(seen["files"])) == (count, count)


@pytest.mark.usefixtures("real")
def test_two_jobs_at_once_have_different_gpus(cluster: GpuCluster) -> None:
    hold = "sbatch --parsable -w c -n1 --gpus=1 --output=held --wrap 'gpus-seen; sleep 300'"
    number = cluster.run_as("ada", "head", hold).strip()
    try:
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
