"""Caches and folders of jobs on a node's scratch disk (tailrack:scratch), as users see them, in this order."""

from pathlib import Path

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "training"
PLACE = "/var/lib/scratch"
HOME = "/export/shared/home/ada"
# What a program with a cache does: it downloads unless the file is there.
CACHING = (
    "if [ -e $HF_HOME/model ]; then echo found; else mkdir -p $HF_HOME; echo weights >$HF_HOME/model; echo new; fi"
)


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A node and an idle head node."""
    made = make_cluster("caches")
    made.rent_at_lambda(1, "head")
    made.config["tailrack:users"].append({"name": "bob", "uid": 6002})
    made.config["tailrack:scratch"] = {"folder": PLACE}
    made.up_ok()
    return made


def test_a_second_job_finds_the_cache_of_the_first_and_another_user_does_not(cluster: ClusterUnderTest) -> None:
    job = f"srun -w l1 bash -c '{CACHING}; echo $HF_HOME'"
    own = f"{PLACE}/tailrack-caches/6001/huggingface"
    assert cluster.run_as("ada", "head", job) == f"new\n{own}\n"
    assert cluster.run_as("ada", "head", job) == f"found\n{own}\n"
    assert cluster.run_as("bob", "head", job).startswith("new\n")
    assert cluster.attempt("l1", f"runuser -u bob -- cat {own}/model").returncode != 0
    # A user's own value stays, and so does the log-in.
    told = cluster.run_as(
        "ada", "head", "HF_HOME=/shared/home/ada/hf srun -w l1 bash -c 'echo $HF_HOME $HF_TOKEN_PATH'"
    )
    assert told == "/shared/home/ada/hf\n"
    shown = cluster.run_as("ada", "head", "srun -w l1 env")
    assert "HF_TOKEN_PATH=/shared/home/ada/.cache/huggingface/token" in shown
    for name in ("TORCH_HOME", "TRITON_CACHE_DIR", "PIP_CACHE_DIR"):
        assert f"\n{name}={PLACE}/tailrack-caches/6001/" in shown


def test_the_hourly_cleaning_keeps_recent_files_with_any_date(cluster: ClusterUnderTest) -> None:
    model = f"{PLACE}/tailrack-caches/6001/huggingface/model"
    cluster.run("l1", f"touch -d '40 days ago' {model}")
    cluster.run("l1", f"tailrack-minute scratch && test -e {model}")
    assert "tailrack-minute.timer" in cluster.run("l1", "systemctl list-timers --no-pager")


def clean(cluster: ClusterUnderTest) -> bool:
    return cluster.run("l1", f"ls {PLACE}/tailrack-jobs") == ""


# Stands for Python with PyTorch: it continues at the last checkpoint in its folder and writes the next one.
TRAINER = r"""#!/bin/bash
last=$(ls "$3" | tail -n 1 | tr -dc 0-9)
number=$((10#${last:-0} + 1))
echo "$1 $2 $4: from ${last:-nothing} in $3"
echo "$number" >"$3/step-$number.pt"
"""


def test_the_training_example_continues_from_copies_of_checkpoints_in_scratch(cluster: ClusterUnderTest) -> None:
    cluster.give("ada", EXAMPLE)
    cluster.run_as("ada", "head", f"cat >trainer <<'END'\n{TRAINER}END\nchmod +x trainer")
    submit = "sbatch --parsable -N1 -w l1 --output=out train_scratch.sh data run --seed=1"
    for number, before in ((1, "nothing"), (2, "1")):
        job = cluster.run_as("ada", "head", f"cd training && PYTHON=~/trainer {submit}").strip()
        kept = f"cat {HOME}/training/run/step-{number}.pt"
        eventually(lambda kept=kept: cluster.attempt("head", kept).returncode == 0, 60, "it is on the share")  # type: ignore[misc]
        out = cluster.run("head", f"cat {HOME}/training/out")
        assert f"train.py data --seed=1: from {before} in {PLACE}/tailrack-jobs/{job}/checkpoints" in out
        eventually(lambda: clean(cluster), 30, "the job's folder is gone")


def test_without_the_line_in_the_config_caches_and_programs_are_gone(cluster: ClusterUnderTest) -> None:
    del cluster.config["tailrack:scratch"]
    cluster.up_ok()
    gone = f"{PLACE}/tailrack-caches /usr/local/lib/tailrack/scratch-clean"
    assert cluster.attempt("l1", f"ls -d {gone}").stdout == ""
    assert cluster.run_as("ada", "head", "srun -w l1 bash -c 'echo ${HF_HOME:-none}'") == "none\n"
