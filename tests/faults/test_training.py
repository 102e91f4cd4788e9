"""Training by examples/training, over two nodes of two sites: Debian's PyTorch, on CPUs."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

TRAINING = Path(__file__).parents[2] / "examples" / "training"
NODES = ("a1", "b1")
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends"
PYTORCH = f"apt-get -qq update && {INSTALL} python3-torch"
OVER_BOTH = "-w a1,b1 --switches=2"
EPOCHS = 12


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Iterator[ClusterUnderTest]:
    """The dev stack, with PyTorch on its nodes and ada's data on the share."""
    made = make_cluster("train")
    made.up_ok()
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: made.run(node, PYTORCH, 600), NODES))
    made.give("ada", TRAINING)
    made.run_as("ada", "a1", "cd training && python3 make_shards.py data")
    yield made
    made.run("head", "scancel -u ada")


def final_loss(told: str) -> float:
    """The loss with which a run has ended."""
    found = re.search(r"^final loss ([0-9.]+)$", told, re.MULTILINE)
    assert found, told
    return float(found[1])


@pytest.fixture(scope="module")
def whole(cluster: ClusterUnderTest) -> str:
    """What a run printed that nothing has ended."""
    return cluster.ended("training", f"{OVER_BOTH} train_srun.sh data whole --epochs {EPOCHS}")


def test_the_loss_falls_and_each_rank_sees_data_of_its_own(whole: str) -> None:
    losses = [float(loss) for loss in re.findall(r"step \d+ loss ([0-9.]+)", whole)]
    assert losses[0] > 2
    assert final_loss(whole) < 0.5
    read = re.findall(r"rank (\d) epoch (\d+) reads (.+)", whole)
    for epoch in range(EPOCHS):
        zero, one = (set(shards.split()) for rank in "01" for r, e, shards in read if (r, e) == (rank, str(epoch)))
        assert not zero & one
        assert len(zero | one) == 8
    assert re.search(r"images per second: \d+ on 2 ranks", whole)


def test_a_run_that_was_ended_goes_on_and_ends_with_the_same_loss(cluster: ClusterUnderTest, whole: str) -> None:
    words = f"{OVER_BOTH} train_srun.sh data ended --epochs {EPOCHS} --save-every 5"
    job = cluster.run_as("ada", "head", f"cd training && rm -f kept; sbatch --parsable --output=kept {words}").strip()
    there = "ls /shared/home/ada/training/ended/step-*.pt"
    eventually(lambda: cluster.attempt("head", there).returncode == 0, 120, "there is a checkpoint")
    cluster.run_as("ada", "head", f"scontrol requeue {job}")

    def told() -> str:
        # Slurm would let it wait for two minutes.
        cluster.attempt("head", f"scontrol update jobid={job} starttime=now")
        return cluster.attempt("head", "cat /shared/home/ada/training/kept").stdout

    eventually(lambda: "final loss" in told(), 240, "the run has ended")
    assert "goes on from ended/step-" in told()
    assert final_loss(told()) == pytest.approx(final_loss(whole), rel=1e-3)


def test_a_run_that_gets_sigterm_saves_at_that_step_and_goes_on_from_it(cluster: ClusterUnderTest, whole: str) -> None:
    # Without SIGTERM it would write no checkpoint within an epoch.
    words = f"{OVER_BOTH} train_srun.sh data sent --epochs {EPOCHS} --save-every 100000"
    job = cluster.run_as("ada", "head", f"cd training && rm -f sent.out; sbatch --parsable --output=sent.out {words}")
    job = job.strip()

    def told() -> str:
        return cluster.attempt("head", "cat /shared/home/ada/training/sent.out").stdout

    eventually(lambda: "epoch 1 reads" in told(), 120, "the second epoch has begun")
    cluster.run_as("ada", "head", f"scontrol requeue {job}")

    def told_again() -> str:
        # Slurm would let it wait for two minutes.
        cluster.attempt("head", f"scontrol update jobid={job} starttime=now")
        return told()

    eventually(lambda: "final loss" in told_again(), 240, "the run has ended")
    found = re.search(r"goes on from sent/step-0*(\d+)\.pt: epoch (\d+), step (\d+)", told())
    assert found, told()
    assert int(found[3]) > 0, "a step within an epoch, where only SIGTERM saves"
    assert int(found[1]) == int(found[2]) * 1_000_000 + int(found[3])
    assert final_loss(told()) == pytest.approx(final_loss(whole), rel=1e-3)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
def test_every_epoch_prints_its_loss_and_leaves_a_checkpoint_with_any_number_of_ranks(
    cluster: ClusterUnderTest, ranks: int
) -> None:
    cluster.run_as("ada", "a1", "cd training && rm -rf few && python3 make_shards.py few --shards 16 --samples 32")
    srun = f"srun --overcommit -n{ranks} python3 train.py few of-{ranks} --epochs 2"
    said = cluster.ended("training", f"-N1 -w a1 --exclusive --wrap '{srun} --save-every 1000'")
    assert re.findall(r"^epoch (\d) step \d+ loss [0-9.]+$", said, re.MULTILINE) == ["0", "1"], said
    kept = cluster.run("head", f"ls /shared/home/ada/training/of-{ranks}").split()
    assert kept == ["step-01000000.pt", "step-02000000.pt"]


def test_a_checkpoint_is_written_when_the_last_one_is_too_old(cluster: ClusterUnderTest) -> None:
    words = f"{OVER_BOTH} train_srun.sh data timed --epochs 1 --save-every 1000 --save-minutes 0"
    said = cluster.ended("training", words)
    steps = [int(step) for step in re.findall(r"^epoch 0 step (\d+) loss", said, re.MULTILINE)]
    # Each step after the first finds the last checkpoint too old.
    assert steps == list(range(1, steps[-1] + 1))
    assert len(steps) > 2


def test_torchrun_names_the_missing_part_of_debians_pytorch(cluster: ClusterUnderTest) -> None:
    told = cluster.ended("training", f"{OVER_BOTH} train_torchrun.sh data torchrun --epochs 1")
    assert told.startswith("train: torchrun wants a PyTorch with libuv, which Debian's has not")


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize(
    ("before", "words", "said"),
    [
        (
            "cp -r whole cut && truncate -s 5000 $(ls cut/*.pt | tail -n 1)",
            "data cut",
            r"checkpoint cut/step-\d+\.pt is damaged .*take it away, and the run goes on from the one before",
        ),
        (":", "data whole", r"checkpoint whole/step-\d+\.pt is of 2 ranks and this job has 1"),
        (
            "cp -r data broken && truncate -s 50000 broken/shard-000003.tar",
            "broken other --epochs 1",
            r"shard broken/shard-000003\.tar is damaged .*take it away and make it again",
        ),
        (
            ":",
            "data /mnt/small/run --epochs 2",
            r"cannot write checkpoint /mnt/small/run/step-\d+\.pt .*the last good one is /mnt/small/run/step-\d+\.pt",
        ),
    ],
)
def test_an_unusable_training_gets_a_remedy(cluster: ClusterUnderTest, before: str, words: str, said: str) -> None:
    cluster.run("a1", "mountpoint -q /mnt/small || mount -m -t tmpfs -o size=4m,mode=1777 tmpfs /mnt/small")
    cluster.run_as("ada", "a1", f"cd training && {before}")
    told = cluster.ended("training", f"-N1 -w a1 train_srun.sh {words}")
    assert re.search(said, told), told
    assert "Traceback" not in told


def test_the_training_benchmark_is_an_output_that_says_it_is_of_cpus(cluster: ClusterUnderTest) -> None:
    cluster.config["tailrack:validation"]["training"] = {"nodes": list(NODES), "steps": 5, "warmup": 1}
    cluster.up_ok()
    trained = cluster.deployment().outputs()["training"]
    # No floor is known; other work on this machine may set the three runs apart.
    assert trained["verdict"] in ("UNJUDGED", "UNSTABLE"), trained["reason"]
    assert (trained["device"], trained["ranks"], sorted(trained["nodes"])) == ("CPU", 2, list(NODES))
    assert trained["images_per_second"] == pytest.approx(2 * trained["images_per_second_per_rank"])
    assert "node (on its CPUs)" in trained["reason"]
    cluster.up_ok()
    assert cluster.touched() == set()


def test_nodes_without_pytorch_are_named_with_the_key_and_the_bandwidth_stays(cluster: ClusterUnderTest) -> None:
    before = cluster.deployment().outputs()["busbw_gb_per_s"]
    cluster.config["tailrack:validation"]["training"] = {"nodes": list(NODES), "python": "/usr/bin/no-such-python"}
    cluster.up_ok()
    outputs = cluster.deployment().outputs()
    assert outputs["training"]["verdict"] == "INCONCLUSIVE"
    assert "PyTorch is missing on a1, b1" in outputs["training"]["reason"]
    assert "tailrack:validation.training.python" in outputs["training"]["reason"]
    assert outputs["busbw_gb_per_s"] == before
