"""Caches and copies of jobs on a node's scratch disk (tailrack:scratch), as users see them, in this order."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually

pytestmark = pytest.mark.proof

EXAMPLE = Path(__file__).parents[2] / "examples" / "training"
PLACE = "/var/lib/scratch"
HOME = "/export/shared/home/ada"
# What a program with a cache does: it downloads unless the file is there.
CACHING = (
    "if [ -e $HF_HOME/model ]; then echo found; else mkdir -p $HF_HOME; echo weights >$HF_HOME/model; echo new; fi"
)
# A job that trains: it writes a checkpoint, and is then ended by someone else or ends by itself.
TRAINING = """#!/bin/bash
mkdir $TMPDIR/checkpoints
tailrack sync --at-end $TMPDIR/checkpoints $1
echo one >$TMPDIR/checkpoints/step-1.pt
ln -s /etc/shadow $TMPDIR/checkpoints/link
touch ~/started-$SLURM_JOB_ID
eval "$2"
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str], ClusterUnderTest]) -> ClusterUnderTest:
    """A node and an idle head node."""
    made = make_cluster("caches")
    made.config["tailrack:head"] = {"name": "head", "site": "home"}
    made.config["tailrack:sites"] = [
        {"name": "home", "kind": "lab", "fabric": "tailnet"},
        {"name": "lambda", "kind": "lab", "fabric": "tailnet", "pools": [{"name": "l", "count": 1}]},
    ]
    made.config["tailrack:users"].append({"name": "bob", "uid": 6002})
    made.config["tailrack:validation"]["floors_gb_per_s"] = {}
    made.config["tailrack:scratch"] = {"folder": PLACE}
    made.up_ok()
    made.run_as("ada", "head", f"cat >train.sh <<'END'\n{TRAINING}END")
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


def test_the_hourly_cleaning_keeps_what_was_made_lately_whatever_its_date(cluster: ClusterUnderTest) -> None:
    model = f"{PLACE}/tailrack-caches/6001/huggingface/model"
    cluster.run("l1", f"touch -d '40 days ago' {model}")
    cluster.run("l1", f"systemctl start tailrack-scratch.service && test -e {model}")
    assert "tailrack-scratch.timer" in cluster.run("l1", "systemctl list-timers --no-pager")


def why(cluster: ClusterUnderTest, job: str) -> str:
    return cluster.run_as("ada", "head", f"tailrack why {job}")


def submitted(cluster: ClusterUnderTest, target: str, then: str) -> str:
    job = cluster.run_as("ada", "head", f"sbatch --parsable -w l1 --output=out train.sh {target} '{then}'").strip()
    started = f"test -e {HOME}/started-{job}"
    eventually(lambda: cluster.attempt("head", started).returncode == 0, 60, "the job has written its checkpoint")
    return job


def copied(cluster: ClusterUnderTest, target: str) -> None:
    file = f"{HOME}/{target}/step-1.pt"
    eventually(lambda: cluster.attempt("head", f"cat {file}").stdout == "one\n", 60, "the checkpoint is on the share")


def clean(cluster: ClusterUnderTest) -> bool:
    return cluster.run("l1", f"ls {PLACE}/tailrack-jobs") == ""


def test_a_copy_is_made_after_the_job_has_ended(cluster: ClusterUnderTest) -> None:
    job = submitted(cluster, "/shared/home/ada/ended", "true")
    copied(cluster, "ended")
    eventually(lambda: clean(cluster), 30, "the job's folder is gone")
    # The link is copied as a link, by the user.
    assert cluster.run("head", f"readlink {HOME}/ended/link; stat -c %U {HOME}/ended/step-1.pt") == "/etc/shadow\nada\n"
    assert "l1: copy of checkpoints to /shared/home/ada/ended: done" in why(cluster, job)


def test_a_copy_is_made_after_the_job_was_cancelled(cluster: ClusterUnderTest) -> None:
    job = submitted(cluster, "/shared/home/ada/cancelled", "tail -f /dev/null")
    assert "made when the job has ended" in why(cluster, job)
    cluster.run_as("ada", "head", f"scancel {job}")
    copied(cluster, "cancelled")
    eventually(lambda: clean(cluster), 30, "the job's folder is gone")


def test_a_copy_in_the_background_is_on_the_share_while_the_job_runs(cluster: ClusterUnderTest) -> None:
    script = "mkdir $TMPDIR/a; echo one >$TMPDIR/a/step-1.pt; tailrack sync $TMPDIR/a ~/running; tail -f /dev/null"
    job = cluster.run_as("ada", "head", f"sbatch --parsable -w l1 --output=out --wrap '{script}'").strip()
    copied(cluster, "running")
    cluster.run_as("ada", "head", f"scancel {job}")
    eventually(lambda: clean(cluster), 30, "the job's folder is gone")


def test_a_copy_that_fails_is_shown_tried_again_and_holds_up_no_other_job(cluster: ClusterUnderTest) -> None:
    job = submitted(cluster, "/shared/home/ada/later", "rmdir ~/later; touch ~/later")
    beside = f"{HOME}/later.sync-failed.txt"
    eventually(lambda: cluster.attempt("head", f"cat {beside}").stdout != "", 60, "the failure is beside the target")
    assert re.search(
        r"job \d+ on l1: copy of checkpoints to .*/later: failed: .*tries again until",
        cluster.run("head", f"cat {beside}"),
    )
    assert "tries again until" in why(cluster, job)
    assert cluster.run_as("bob", "head", "srun -w l1 echo free") == "free\n"
    cluster.run("l1", "systemctl stop 'tailrack-scratch-sync.*'")
    # As after a restart of the machine: the next job starts it again.
    cluster.run("head", f"rm {HOME}/later")
    cluster.run_as("bob", "head", "srun -w l1 true")
    copied(cluster, "later")
    eventually(lambda: clean(cluster), 30, "the job's folder is gone")
    assert cluster.attempt("head", f"test -e {beside}").returncode == 1
    assert ": done" in why(cluster, job)


REMOTE = r"[store]\ntype = alias\nremote = /shared/home/ada/bucket\n"


def test_a_copy_goes_to_a_bucket_of_the_users_own_rclone_config(cluster: ClusterUnderTest) -> None:
    cluster.run_as("ada", "head", f"mkdir -p ~/.config/rclone; printf '{REMOTE}' >~/.config/rclone/rclone.conf")
    submitted(cluster, "store:run", "true")
    copied(cluster, "bucket/run")
    words = "mkdir -p $TMPDIR/x; tailrack sync $TMPDIR/x nowhere:run"
    cluster.run_as("ada", "head", f"srun -w l1 bash -c '{words}' >refused 2>&1 || true")
    assert "your rclone config has only store:, not nowhere:" in cluster.run("head", f"cat {HOME}/refused")


# Stands for Python with PyTorch: it continues at the last checkpoint in its folder and writes the next one.
TRAINER = r"""#!/bin/bash
last=$(ls "$3" | tail -n 1 | tr -dc 0-9)
number=$((10#${last:-0} + 1))
echo "$1 $2 $4: from ${last:-nothing} in $3"
echo "$number" >"$3/step-$number.pt"
"""


def test_the_training_example_writes_checkpoints_to_scratch_and_continues_at_the_copies(
    cluster: ClusterUnderTest,
) -> None:
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
    gone = f"{PLACE}/tailrack-caches /usr/local/bin/tailrack /etc/systemd/system/tailrack-scratch.timer"
    assert cluster.attempt("l1", f"ls -d {gone}").stdout == ""
    assert cluster.run_as("ada", "head", "srun -w l1 bash -c 'echo ${HF_HOME:-none}'") == "none\n"
    cluster.run("head", "test -x /usr/local/bin/tailrack")
