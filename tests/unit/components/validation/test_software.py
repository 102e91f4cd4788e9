"""Versions of the programs that a measurement printed."""

from __future__ import annotations

from pathlib import Path

from components.validation.nccl_output import read_versions

FIXTURES = Path(__file__).parents[3] / "fixtures" / "nccl_tests"


def test_the_versions_of_a_real_run_are_read() -> None:
    output = (FIXTURES / "nccl-tests-2.19-2x1-H200-slurm-eth0.txt").read_text()
    versions = read_versions(output)
    assert versions["nccl-tests"] == "2.19.6"


def test_ranks_with_different_versions_are_all_named() -> None:
    output = "a:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\nb:1:1 [0] NCCL INFO NCCL version 2.27.3+cuda12.9\n"
    assert read_versions(output) == {"NCCL": "2.28.9, 2.27.3", "CUDA": "13.0, 12.9"}


def test_a_program_that_prints_no_version_has_none() -> None:
    assert read_versions("# tailrack transport: tcp\n") == {}
