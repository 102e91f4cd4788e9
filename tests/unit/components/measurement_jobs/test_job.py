"""The batch job of a measurement."""

import base64
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from components.measurement_jobs.plan import nccl_job, validation_job
from components.settings.validation import Nccl
from components.validation.model import Measurement

SIZES: dict[str, Any] = {"min_bytes": 65536, "max_bytes": 4194304, "factor": 4, "gate_bytes": 4194304}
ASKED = Measurement(backend="mpi-cpu", **SIZES, iterations=5, warmup=1, ranks=6, nodes=3, floor_gb_per_s=0.5)


@pytest.fixture
def job() -> str:
    return validation_job("cross-site", ASKED, 10, 2)


def test_the_job_is_as_it_was(job: str, snapshot: SnapshotAssertion) -> None:
    assert job == snapshot


def test_the_job_between_sites_is_as_it_was(snapshot: SnapshotAssertion) -> None:
    assert validation_job("cross-site", replace(ASKED, backend="tcp-cpu"), 10, 2) == snapshot


def test_each_job_makes_a_token_of_its_own_that_is_in_no_command_line(tmp_path: Path) -> None:
    job = validation_job("cross-site", replace(ASKED, backend="tcp-cpu"), 10, 2)
    (tmp_path / "srun").write_text('#!/bin/bash\nprintf "%s\\n" "$TAILRACK_RING_TOKEN" "$*"\n')
    (tmp_path / "srun").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": "/home/ada/measurement"}
    runs = [
        subprocess.run(["bash"], input=job, env=environment, text=True, capture_output=True, check=True).stdout
        for _ in range(2)
    ]
    tokens = [run.splitlines()[0] for run in runs]
    commands = {run.splitlines()[1] for run in runs}
    assert [len(base64.b64decode(token)) for token in tokens] == [32, 32]
    assert tokens[0] != tokens[1]
    assert commands == {
        "--mpi=none --distribution=block /usr/bin/python3 /home/ada/measurement/tailrack.pyz all-reduce"
        " --transport tcp --interface tailscale0 -b 65536 -e 4194304 -f 4 -n 5 -w 1"
    }


# Between GPUs.


@pytest.mark.parametrize(
    "settings",
    [
        Nccl(),
        Nccl(
            collective="all_gather",
            image="nccl-tests",
            program="/srv/nccl-tests/build",
            partition="h200",
            exports={"NCCL_IB_HCA": "mlx5", "SPOKEN": "it's $HOME"},
            srun_options=("--cpu-bind=none", "--no-container-remap-root"),
        ),
    ],
    ids=["as it is", "with all there is to say"],
)
def test_the_job_between_gpus_is_as_it_was(settings: Nccl, snapshot: SnapshotAssertion) -> None:
    job = nccl_job("rack", settings, 10)
    assert job == snapshot
    told = subprocess.run(["bash", "-n"], input=job, text=True, capture_output=True)
    assert (told.returncode, told.stderr) == (0, "")


def run_gpu_job(folder: Path, settings: Nccl, *arguments: str, nodes: str = "2") -> list[str]:
    """Run the job with an srun that tells its environment and words, one call an element."""
    (folder / "srun").write_text(
        '#!/bin/bash\ncase "$*" in *gpus-in-use) echo "$*" >>looks; echo nothing; exit ;; esac\n'
        'printf "%s;" "$@" >>calls\nenv | grep -E "^(NCCL|OMPI|TAILRACK|SPOKEN)" | sort >>calls\n'
        "printf '\\0' >>calls; echo table\n"
    )
    (folder / "srun").chmod(0o755)
    (folder / "build.env").write_text("TAILRACK_SHA256='content:12'\n")
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_NUM_NODES": nodes}
    job = nccl_job("rack", settings, 10)
    command = ["bash", "-s", "--", *arguments]
    subprocess.run(command, input=job, env=environment, text=True, capture_output=True, check=True)
    return (folder / "calls").read_text().split("\0")[:-1]


def test_each_run_has_its_own_table_and_names_no_interface_that_jobs_already_have(tmp_path: Path) -> None:
    first, second = run_gpu_job(tmp_path, Nccl(iterations=7), "any", "", "1", "8:64", "64:64")
    assert f"{tmp_path}/rank.sh;1;-b;8;-e;64;-f;4;-n;7;-w;5;-g;1;-c;1;" in first
    assert f"{tmp_path}/rank.sh;2;-b;64;-e;64;" in second
    assert {path.name for path in tmp_path.glob("table.*")} == {"table.1", "table.2"}
    for word in ("NCCL_SOCKET_IFNAME", "if_include", "NCCL_IB_DISABLE", "NCCL_NET="):
        assert word not in first
    assert "OMPI_MCA_btl=self,vader,tcp\n" in first
    assert "TAILRACK_SHA256=content:12\n" in first


def test_the_job_checks_gpus_for_other_processes_before_each_run_and_after_the_last(tmp_path: Path) -> None:
    run_gpu_job(tmp_path, Nccl(image="x"), "any", "", "1", "8:64", "64:64", "64:64")
    looks = (tmp_path / "looks").read_text().splitlines()
    # On the machines, not in the image; once on each.
    launch = "--mpi=none --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=0"
    assert looks == [f"{launch} /usr/bin/python3 tailrack.pyz gpus-in-use"] * 4
    assert {path.name for path in tmp_path.glob("beside.*")} == {f"beside.{at}" for at in range(1, 5)}


def test_the_configs_exports_come_last_and_reach_the_ranks_unchanged(tmp_path: Path) -> None:
    exports = {"NCCL_SOCKET_IFNAME": "eth9", "SPOKEN": "it's $HOME; `id`"}
    (call,) = run_gpu_job(tmp_path, Nccl(exports=exports), "any", "eth0", "1", "8:8")
    assert "NCCL_SOCKET_IFNAME=eth9\n" in call
    assert "SPOKEN=it's $HOME; `id`\n" in call


def test_an_image_is_entered_with_the_jobs_folder_and_runs_its_own_program(tmp_path: Path) -> None:
    settings = Nccl(image="docker://a/b#c:1", srun_options=("--cpu-bind=none",))
    call, other = run_gpu_job(tmp_path, settings, "any", "", "4", "8:8", "8:8:alltoall")
    assert "rank.sh;2;-b;8;-e;8;-f;4;-n;20;-w;5;-g;4;" in other
    assert "TAILRACK_PROGRAM=alltoall_perf\n" in other
    assert "--mpi=pmix;--kill-on-bad-exit=1;--cpu-bind=none;--container-image=docker://a/b#c:1;" in call
    assert f"--container-mounts={tmp_path}:{tmp_path};" in call
    assert "TAILRACK_PROGRAM=all_reduce_perf\n" in call
    assert "TAILRACK_SHA256" not in call
