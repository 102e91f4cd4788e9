"""The batch job of a measurement."""

from __future__ import annotations

import base64
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from components.validation.model import Backend, Measurement
from components.validation_job import validation_job

ASKED = Measurement(
    backend="mpi-cpu",
    min_bytes=65536,
    max_bytes=4194304,
    factor=4,
    iterations=5,
    warmup=1,
    gate_bytes=4194304,
    ranks=6,
    nodes=3,
    floor_gb_per_s=0.5,
)
NODES = ("a1", "b1", "head")


@pytest.fixture
def job() -> str:
    return validation_job("cross-site", NODES, ASKED, 10, 2)


def options(job: str) -> dict[str, str]:
    found = re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", job, re.MULTILINE)
    return dict(found)


def test_the_job_is_as_it_was(job: str, snapshot: SnapshotAssertion) -> None:
    assert job == snapshot


def test_the_job_between_sites_is_as_it_was(snapshot: SnapshotAssertion) -> None:
    assert validation_job("cross-site", NODES, replace(ASKED, backend="tcp-cpu"), 10, 2) == snapshot


def test_the_job_takes_the_nodes_of_its_scope_alone_and_for_itself(job: str) -> None:
    asked = options(job)
    assert asked["nodelist"] == "a1,b1,head"
    assert (asked["nodes"], asked["ntasks"], asked["ntasks-per-node"]) == ("3", "6", "2")
    assert (asked["switches"], asked["time"]) == ("2", "10")
    assert {"exclusive", "no-requeue"} <= asked.keys()


def test_the_program_is_given_the_sizes_that_were_asked_for(job: str) -> None:
    (call,) = re.findall(r"all_reduce_perf\.py\" [^\n]*\\\n(.*)", job, re.DOTALL)
    assert call.replace("\\\n", " ").split() == ["-b", "65536", "-e", "4194304", "-f", "4", "-n", "5", "-w", "1"]


def test_traffic_has_no_way_but_tcp_on_the_network_that_every_job_is_told_of(job: str) -> None:
    assert "export OMPI_MCA_btl=tcp,self\n" in job
    assert "if_include" not in job


def test_between_sites_the_job_needs_no_mpi_and_uses_the_tailnet_alone() -> None:
    job = validation_job("cross-site", NODES, replace(ASKED, backend="tcp-cpu"), 10, 2)
    assert "OMPI" not in job
    assert "PMIX" not in job
    assert "\nlaunch=(srun --mpi=none " in job
    assert "\ntransport=(--transport tcp --interface tailscale0)\n" in job


def test_each_job_makes_a_token_of_its_own_that_is_in_no_command_line(tmp_path: Path) -> None:
    job = validation_job("cross-site", NODES, replace(ASKED, backend="tcp-cpu"), 10, 2)
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
        "--mpi=none --distribution=block /usr/bin/python3 /home/ada/measurement/all_reduce_perf.py"
        " --transport tcp --interface tailscale0 -b 65536 -e 4194304 -f 4 -n 5 -w 1"
    }


def test_a_floor_is_no_part_of_the_job() -> None:
    other = Measurement(**{**vars(ASKED), "floor_gb_per_s": None})
    assert validation_job("x", NODES, other, 10, 2) == validation_job("x", NODES, ASKED, 10, 2)


@pytest.mark.parametrize("backend", ["mpi-cpu", "tcp-cpu"])
def test_the_job_is_valid_bash(backend: Backend) -> None:
    job = validation_job("cross-site", NODES, replace(ASKED, backend=backend), 10, 2)
    told = subprocess.run(["bash", "-n"], input=job, text=True, capture_output=True)
    assert (told.returncode, told.stderr) == (0, "")
