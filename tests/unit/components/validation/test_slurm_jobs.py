"""Jobs of a measurement as Slurm's own commands show them, played."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from components.validation import slurm_jobs
from components.validation.slurm_jobs import Limits, Order, run_jobs


def played(monkeypatch: pytest.MonkeyPatch, shown: dict[str, Any]) -> None:
    """Slurm that takes every job as number 7 and shows it so."""
    answers = {"sbatch": "7\n", "scontrol": json.dumps({"jobs": [shown]})}

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 0, answers[words[0]], "")

    monkeypatch.setattr(subprocess, "run", run)


def test_a_job_that_has_ended_while_one_of_its_nodes_cleans_up_ran_on_all_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # job_mgr.c packs nodes_completing in the place of nodes as long as an epilog runs.
    monkeypatch.setattr(slurm_jobs, "CLEAN_SECONDS", 0)
    played(monkeypatch, {"job_state": ["COMPLETED", "COMPLETING"], "nodes": "b1", "exit_code": {"return_code": 0}})
    order = Order(tmp_path / "job", ("a1", "b1", "head"), {"job.sh": "true"})
    (report,) = run_jobs([order], Limits(1, 1))
    assert (report["state"], report["nodes"]) == ("COMPLETED", ["a1", "b1", "head"])


def test_a_job_that_was_cancelled_before_it_began_ran_on_no_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    played(monkeypatch, {"job_state": ["CANCELLED"], "nodes": "", "exit_code": {"return_code": 0}})
    (report,) = run_jobs([Order(tmp_path / "job", ("a1",), {"job.sh": "true"})], Limits(1, 1))
    assert report["nodes"] == []


def test_nodes_have_cleaned_up_when_a_measurement_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: dict[str, Any] = {"job_state": ["COMPLETED", "COMPLETING"], "nodes": "a1", "exit_code": 0}
    played(monkeypatch, shown)
    looks = iter(range(3))

    def sleep(_: float) -> None:
        if next(looks) == 2:
            shown["job_state"] = ["COMPLETED"]
            played(monkeypatch, shown)

    monkeypatch.setattr(time, "sleep", sleep)
    run_jobs([Order(tmp_path / "job", ("a1",), {"job.sh": "true"})], Limits(1, 1))
    assert next(looks, "all") == "all"
