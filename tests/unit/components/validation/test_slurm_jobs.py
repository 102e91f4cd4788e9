"""Jobs of a measurement as Slurm's own commands show them, played."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from components.node.run import Ended
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node
from components.validation import slurm_jobs
from components.validation.slurm_jobs import Limits, Order, run_jobs


def played(monkeypatch: pytest.MonkeyPatch, shown: dict[str, Any]) -> None:
    """Slurm that takes every job as number 7 and shows it so."""
    monkeypatch.setattr(slurm_jobs, "attempt", lambda *_, **__: Ended(0, "7\n"))
    job = json.dumps({"jobs": [{"job_id": 7, **shown}]})
    monkeypatch.setattr(slurm, "_run", lambda *_, **__: job)


def run_job(folder: Path, *nodes: str) -> dict[str, Any]:
    """Run a job on nodes; return its report."""
    (report,) = run_jobs([Order(folder / "job", nodes, {"job.sh": "true"})], Limits(1, 1))
    return dict(report)


def test_a_job_that_ended_while_a_node_cleans_up_ran_on_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # job_mgr.c packs nodes_completing in the place of nodes as long as an epilog runs.
    monkeypatch.setattr(slurm_jobs, "CLEAN_SECONDS", 0)
    played(monkeypatch, {"job_state": ["COMPLETED", "COMPLETING"], "nodes": "b1", "exit_code": {"return_code": 0}})
    report = run_job(tmp_path, "a1", "b1", "head")
    assert (report["state"], report["nodes"]) == ("COMPLETED", ["a1", "b1", "head"])


def test_a_job_cancelled_before_it_began_ran_on_no_node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    played(monkeypatch, {"job_state": ["CANCELLED"], "nodes": "", "exit_code": {"return_code": 0}})
    report = run_job(tmp_path, "a1")
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
    run_job(tmp_path, "a1")
    assert next(looks, "all") == "all"


REFUSED = "Prolog error: prolog.d/50-mine: ended with status 3: no room; next: make room"


@pytest.mark.parametrize(
    ("reasons", "absent"),
    [
        # Slurm drains the node first, and the node adds what failed some seconds later.
        (["", "Prolog error", REFUSED], {"a1": f"drained: {REFUSED}"}),
        (["Prolog error", "health: GPU: 7 of 8 answer"], {"a1": "drained: health: GPU: 7 of 8 answer"}),
        (["Prolog error"] * 9, {"a1": "drained: Prolog error"}),
    ],
)
def test_a_job_that_a_prolog_refused_measured_nothing_and_names_the_node_with_the_whole_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reasons: list[str], absent: dict[str, str]
) -> None:
    monkeypatch.setattr(slurm_jobs, "REASON_SECONDS", 0.1)
    monkeypatch.setattr(slurm_jobs, "POLL_SECONDS", 0.01)
    job = {"job_state": ["FAILED"], "state_reason": "Prolog", "nodes": "a1", "exit_code": 0}
    left = iter([*reasons, *reasons[-1:] * 1000])

    def nodes(*_: str) -> list[Node]:
        reason = next(left)
        return [Node("a1", frozenset({"IDLE", *(["DRAIN"] if reason else [])}), reason)]

    played(monkeypatch, job)
    monkeypatch.setattr(slurm, "nodes", nodes)
    report = run_job(tmp_path, "a1")
    assert (report["state"], report["job_id"], report["absent"]) == ("UNAVAILABLE", None, absent)
