"""The end of `make up`: which verdicts make it fail, and what is shown of a scope that was not measured."""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from cli.report import overall, tables
from cli.report.dates import dated
from components.validation.model import JobReport, Measurement
from components.validation.verdict import judge

ASKED = Measurement(
    backend="tcp-cpu",
    min_bytes=65536,
    max_bytes=262144,
    factor=4,
    iterations=2,
    warmup=1,
    gate_bytes=262144,
    ranks=2,
    nodes=2,
)
NOON = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()
BUSY = {
    "job_id": None, "state": "BUSY", "exit_code": None, "seconds": None, "nodes": [], "output": "",
    "facts": {"a1": "job 12 of ada, 55:00 left"}, "left_out": ["a1"], "measured_at": 1_800_000_000,
}  # fmt: skip


def outputs(**scopes: dict[str, Any]) -> dict[str, Any]:
    about = {"name": "lab", "control_address": "100.64.0.1", "nodes": []}
    return {"cluster": about, "validation": scopes}


@pytest.mark.parametrize(
    ("verdict", "fails"),
    [("PASS", False), ("UNJUDGED", False), ("BUSY", False), ("FAIL", True), ("INCONCLUSIVE", True), ("UNSTABLE", True)],
)
def test_a_busy_scope_does_not_make_up_fail(verdict: str, fails: bool) -> None:
    assert overall.bad(outputs(rack={"verdict": verdict})) == (["rack"] if fails else [])


def test_a_site_of_one_node_is_shown_once() -> None:
    measured = {**judge(ASKED, JobReport.from_json({**BUSY, "state": "FAILED", "exit_code": 3})), "job_id": 7}
    about = outputs(box=measured, node={"c": measured, "d": {**measured, "job_id": 8}})
    written = io.StringIO()
    tables.show(Console(file=written, width=200), about)
    assert overall.bad(about) == ["node d", "box"]
    assert "node c" not in written.getvalue()


def test_a_busy_scope_names_the_users_of_its_nodes() -> None:
    written = io.StringIO()
    result = dict(judge(ASKED, JobReport.from_json(BUSY)))
    tables.show(Console(file=written, width=200), outputs(rack=result))
    shown = written.getvalue()
    assert "Bus bandwidth, rack: not measured\n" in shown
    assert "BUSY  Other jobs are on a1 (a1: job 12 of ada, 55:00 left). Nothing was measured before." in shown
    assert "None" not in shown


@pytest.mark.parametrize(("retries", "fails"), [(0, False), (1, False), (2, True), (7, True)])
def test_a_scope_that_is_busy_for_the_third_time_in_a_row_is_no_success(retries: int, fails: bool) -> None:
    assert overall.bad(outputs(rack={"verdict": "BUSY", "retries": retries})) == (["rack"] if fails else [])


def test_jobs_that_are_not_kept_from_one_anothers_gpus_are_said_to_be() -> None:
    node = dict.fromkeys(
        ("site", "tailnet_ip", "path", "cpus", "memory_mb", "gpus", "slurm_version", "tailscale_version"), "x"
    )
    nodes = [
        {**node, "name": "dgx1", "gpu": {"kind": "h200", "confined": False}},
        {**node, "name": "dgx2", "gpu": {"kind": "h200", "confined": True}},
        {**node, "name": "cpu1"},
    ]
    about = {"name": "lab", "control_address": "100.64.0.1", "nodes": nodes}
    written = io.StringIO()
    tables.show(Console(file=written, width=200), {"cluster": about, "validation": {}})
    assert "Jobs on dgx1 can use each other's GPUs" in written.getvalue()


@pytest.mark.parametrize(
    ("measured", "since", "words"),
    [
        ("2026-11-26T05:18:30Z", NOON, "measured 05:18 UTC, unchanged since"),
        ("2026-11-25T23:59:00Z", NOON, "measured 2026-11-25 23:59 UTC, unchanged since"),
        ("2026-11-26T12:00:01Z", NOON, ""),
        ("2026-11-26T12:00:01Z", math.inf, "measured 12:00 UTC, unchanged since"),
        (None, math.inf, ""),
        ("yesterday", math.inf, ""),
    ],
)
def test_a_figure_of_an_earlier_run_has_its_date(measured: str | None, since: float, words: str) -> None:
    assert dated({"measured_at": measured, "verdict": "PASS"}, since, NOON + 5) == words


def test_rented_machines_are_shown_with_their_price_and_the_places_that_had_none() -> None:
    facts = {"type": "gpu_1x", "region": "us-west-2", "price_per_hour": 1.29, "currency": "USD"}
    rented = {"r1": {**facts, "tried": ["gpu_1x in us-east-1: no capacity"]}, "r2": {**facts, "price_per_hour": None}}
    written = io.StringIO()
    tables.show(Console(file=written, width=200), {**outputs(), "rented": rented})
    shown = written.getvalue()
    assert "Rented machines" in shown
    assert "gpu_1x in us-east-1: no capacity" in shown
    assert "1.29 USD" in shown
    assert "unknown" in shown
    tables.show(Console(file=(without := io.StringIO()), width=200), outputs())
    assert "Rented machines" not in without.getvalue()
