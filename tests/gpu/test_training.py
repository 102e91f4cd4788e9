"""Jobs that train on real GPUs, and those of examples/jobs that want some: with the PyTorch that this machine has."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from components.validation.training_verdict import read_training
from tests.faults.test_training import TRAINING, final_loss
from tests.gpu.cluster import GpuCluster
from tests.gpu.machines import FABRIC, PLACE, PYTORCH
from tests.lab.cluster import eventually
from tests.lab.test_jobs import JOBS

pytestmark = pytest.mark.usefixtures("real")

EPOCHS = 12
WARMUP, STEPS = 10, 40
FIGURES: dict[str, Any] = {}


@pytest.fixture(scope="module", autouse=True)
def python(cluster: GpuCluster) -> str:
    """The Python that has PyTorch; the cluster is up, and ada has the examples and their data in her home."""
    found = PYTORCH.read_text().splitlines()
    if not found:
        pytest.skip("TRAINING IS NOT TESTED: this machine's python3 has no PyTorch in an environment of its own")
    cluster.measured()
    for folder in (TRAINING, JOBS):
        cluster.give("ada", folder)
    cluster.run_as("ada", "c", f"cd training && {found[0]} make_shards.py data", 120)
    return found[0]


def keep(name: str, told: Any) -> None:
    """Keep a figure for who reads the outputs of a run."""
    FIGURES[name] = told
    (PLACE / "out" / "training.json").write_text(json.dumps(FIGURES, indent=1))


def test_each_task_of_a_job_has_a_gpu_of_its_own(cluster: GpuCluster) -> None:
    told = re.findall(r"task (\d) on c: NVIDIA .+, (GPU-\S+)", cluster.ended("jobs", f"{cluster.all_gpus} gpu.sh"))
    assert len({uuid for _, uuid in told}) == len(told) == len(cluster.machines["c"].gpus), told


@pytest.mark.parametrize(
    ("name", "words", "least"),
    [("one node", "", 100), ("two nodes", "-w a,b -N2 --gpus-per-node=1 --ntasks-per-node=1 --cpus-per-task=8", 1)],
)
def test_pytorchs_all_reduce_runs_as_the_example_has_it(
    cluster: GpuCluster, python: str, name: str, words: str, least: float
) -> None:
    cluster.need(1 if words else 2)
    venv = str(Path(python).parents[1])
    told = cluster.ended("jobs", f"--export=ALL,VENV={venv} {words or cluster.all_gpus} nccl.sh")
    rates = [float(rate) for rate in re.findall(r"([\d.]+) GB/s bus bandwidth over \d ranks", told)]
    keep(f"all_reduce of PyTorch, {name}", rates)
    assert rates, told
    # NVLink on one node; between two a network of the machine's own memory, or the tailnet would not reach this.
    assert max(rates) > least, told


def trained(cluster: GpuCluster, python: str, nodes: list[str], **validation: str) -> dict[str, Any]:
    """What the training benchmark says of some nodes."""
    cluster.measured(training={"nodes": nodes, "python": python, "warmup": WARMUP, "steps": STEPS}, **validation)
    found: dict[str, Any] = cluster.deployment().outputs()["training"]
    assert found["verdict"] == "UNJUDGED", found["reason"]
    assert (found["device"], sorted(found["nodes"])) == ("GPU", nodes)
    return found


def test_the_training_benchmark_scales_over_nvlink_unjudged_without_a_floor(cluster: GpuCluster, python: str) -> None:
    one, all_gpus, over_nodes = (trained(cluster, python, nodes) for nodes in (["a"], ["c"], ["a", "b"]))
    assert (one["ranks"], all_gpus["ranks"], over_nodes["ranks"]) == (1, len(cluster.machines["c"].gpus), 2)
    for name, found in (("one GPU", one), ("all of a node", all_gpus), (f"two nodes over {FABRIC}", over_nodes)):
        efficiency = found["images_per_second_per_rank"] / one["images_per_second_per_rank"]
        told = ("images_per_second", "images_per_second_per_rank", "jitter", "spread", "devices", "how")
        keep(f"benchmark, DDP, {name}", {"efficiency": efficiency, **{key: found[key] for key in told}})
    # Half of what one has by itself would be a model that waits for its gradients all the time.
    assert all_gpus["images_per_second_per_rank"] > 0.8 * one["images_per_second_per_rank"]


def test_the_benchmark_is_as_fast_as_by_hand_under_torchrun(cluster: GpuCluster, python: str) -> None:
    c = cluster.machines["c"]
    shutil.copytree(TRAINING, c.tree / "var/tmp/by-hand", dirs_exist_ok=True)
    torchrun = f"{python} -m torch.distributed.run --standalone --nproc-per-node={len(c.gpus)}"
    measured, by_hand = [], []
    for number in range(2):  # in turn, so that whatever changes with time changes both
        found = trained(cluster, python, ["c"], rerun=f"by hand {number}")
        measured.append(found["images_per_second"])
        told = cluster.run_as("admin", "c", f"cd /var/tmp/by-hand && {torchrun} benchmark.py {WARMUP} {STEPS}", 180)
        figures = read_training(told)
        assert figures.judged is not None, told
        by_hand.append(figures.rates[figures.judged])
    keep("benchmark, DDP, by torchrun", {"measured": measured, "by_hand": by_hand})
    assert max(measured) == pytest.approx(max(by_hand), rel=0.03)


def test_a_floor_above_the_training_result_fails_without_another_run(cluster: GpuCluster, python: str) -> None:
    before = trained(cluster, python, ["c"])
    floor = before["images_per_second_per_rank"] * 1.5
    asked = {"nodes": ["c"], "python": python, "warmup": WARMUP, "steps": STEPS, "floor_images_per_second": floor}
    cluster.measured(training=asked)
    after = cluster.deployment().outputs()["training"]
    assert (after["verdict"], after["job_id"]) == ("FAIL", before["job_id"]), after["reason"]


def test_fsdp_of_the_benchmarks_model_is_as_fast_on_all_gpus_as_it_says(cluster: GpuCluster, python: str) -> None:
    cluster.need(2)
    rates = {}
    for name, words in (("one GPU", "-w a -N1 --gpus-per-node=1 -n1 -c8"), ("all of a node", cluster.all_gpus)):
        job = f"srun --kill-on-bad-exit=1 {python} benchmark.py {WARMUP} {STEPS} fsdp"
        told = cluster.ended("training", f"--exclusive {words} --wrap '{job}'")
        runs = [json.loads(run) for run in re.findall(r"^tailrack-training run (.+)$", told, re.M)]
        assert len(runs) == 3, told
        begin = json.loads(re.findall(r"^tailrack-training begin (.+)$", told, re.M)[0])
        assert all(run["alike"] and run["loss"] is not None for run in runs), told
        middle = sorted(sorted(run["seconds"])[STEPS // 2] for run in runs)[1]
        rates[name] = begin["batch"] * begin["ranks"] / middle
        per_gpu = rates[name] / begin["ranks"]
        keep(f"benchmark, FSDP, {name}", {"efficiency": per_gpu / rates["one GPU"], "images_per_second": rates[name]})
    assert rates["all of a node"] > rates["one GPU"]


@pytest.mark.parametrize(
    ("run", "options"),
    [("ddp", "--parallel ddp"), ("fsdp", "--parallel fsdp"), ("mixed", "--parallel fsdp --precision bf16")],
)
@pytest.mark.parametrize("script", ["train_srun.sh", "train_torchrun.sh"])
def test_a_model_learns_on_all_gpus(cluster: GpuCluster, python: str, script: str, run: str, options: str) -> None:
    # torchrun starts the ranks of its node itself.
    words = cluster.all_gpus
    if "torchrun" in script:
        words = re.sub(r"--ntasks-per-node=\d+", "--ntasks-per-node=1", words)
    folder = f"{script}-{run}"
    asked = f"--export=ALL,PYTHON={python} {words} {script} data {folder} --epochs {EPOCHS} {options}"
    told = cluster.ended("training", asked)
    losses = [float(loss) for loss in re.findall(r"step \d+ loss ([0-9.]+)", told)]
    assert losses, told
    assert losses[0] > 1 > 0.7 > final_loss(told), told
    rate = re.search(r"images per second: (\d+) on (\d+) ranks", told)
    assert rate, told
    assert int(rate[2]) == len(cluster.machines["c"].gpus)
    keep(f"train.py, {folder}", {"images_per_second": int(rate[1]), "final_loss": final_loss(told)})


def test_fsdp_that_was_put_back_into_the_queue_goes_on_and_ends_with_about_the_same_loss(
    cluster: GpuCluster, python: str
) -> None:
    words = f"--export=ALL,PYTHON={python} {cluster.all_gpus} train_srun.sh data"
    options = f"--epochs {EPOCHS} --save-every 5 --parallel fsdp"
    undisturbed = final_loss(cluster.ended("training", f"{words} undisturbed {options}"))
    submit = f"cd training && sbatch --parsable --output=kept {words} requeued {options}"
    job = cluster.run_as("ada", "head", submit).strip()
    home = PLACE / "disk/head/shared/home/ada/training"
    eventually(lambda: any(home.glob("requeued/step-*.pt")), 120, "there is a checkpoint")
    cluster.run_as("ada", "head", f"scontrol requeue {job}")

    def told() -> str:
        # Slurm would let it wait for two minutes.
        cluster.attempt("head", f"scontrol update jobid={job} starttime=now")
        return (home / "kept").read_text()

    eventually(lambda: "final loss" in told(), 240, "the run has ended")
    assert "goes on from requeued/step-" in told()
    # A GPU adds in another order each time.
    assert final_loss(told()) == pytest.approx(undisturbed, rel=0.1)
    shutil.copy(home / "kept", PLACE / "out" / "requeued.txt")
