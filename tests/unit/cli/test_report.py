"""The end of `make up`: which verdicts make it fail, and what is shown of a scope that was not measured."""

import io
import math
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.output.terminal import Terminal
from cli.report import overall, tables
from cli.report.tables import dated
from components.validation.model import JobReport, Measurement
from components.validation.verdict import judge

SIZES: dict[str, Any] = {"min_bytes": 65536, "max_bytes": 262144, "factor": 4, "gate_bytes": 262144}
ASKED = Measurement(backend="tcp-cpu", **SIZES, iterations=2, warmup=1, ranks=2, nodes=2)
NOON = datetime(2026, 11, 26, 12, tzinfo=UTC).timestamp()
BUSY = {
    "job_id": None, "state": "BUSY", "exit_code": None, "seconds": None, "nodes": [], "output": "",
    "facts": {"a1": "job 12 of ada, 55:00 left"}, "left_out": ["a1"], "measured_at": 1_800_000_000,
}  # fmt: skip


def outputs(**scopes: dict[str, Any]) -> dict[str, Any]:
    about = {"name": "lab", "control_address": "100.64.0.1", "nodes": []}
    return {"cluster": about, "validation": scopes}


@pytest.mark.parametrize(
    ("scope", "fails"),
    [
        *(({"verdict": verdict}, False) for verdict in ("PASS", "UNJUDGED", "BUSY")),
        *(({"verdict": verdict}, True) for verdict in ("FAIL", "INCONCLUSIVE", "UNSTABLE")),
        *(({"verdict": "BUSY", "retries": retries}, retries >= 2) for retries in (0, 1, 2, 7)),
    ],
)
def test_a_busy_scope_makes_up_fail_only_the_third_time_in_a_row(scope: dict[str, Any], fails: bool) -> None:
    assert overall.bad(outputs(rack=scope)) == (["rack"] if fails else [])


def shown(about: dict[str, Any]) -> str:
    """The tables in a terminal."""
    written = io.StringIO()
    tables.show(Terminal(file=written, width=200), about)
    return written.getvalue()


def test_a_site_of_one_node_is_shown_once() -> None:
    measured = {**judge(ASKED, JobReport.from_json({**BUSY, "state": "FAILED", "exit_code": 3})), "job_id": 7}
    about = outputs(box=measured, node={"c": measured, "d": {**measured, "job_id": 8}})
    assert overall.bad(about) == ["node d", "box"]
    assert "node c" not in shown(about)


def test_each_collective_has_its_own_verdict() -> None:
    result = judge(ASKED, JobReport.from_json(BUSY))
    other = {"collective": "alltoall", "verdict": "UNJUDGED", "reason": "Measured 300 GB/s.", "rows": []}
    text = shown(outputs(rack={**result, "verdict": "PASS", "collectives": {"alltoall": other}}))
    assert "Bus bandwidth, rack, alltoall: not measured\nUNJUDGED  Measured 300 GB/s." in text


def test_a_busy_scope_names_the_users_of_its_nodes() -> None:
    text = shown(outputs(rack=dict(judge(ASKED, JobReport.from_json(BUSY)))))
    assert "Bus bandwidth, rack: not measured\n" in text
    assert "BUSY  Other jobs are on a1 (a1: job 12 of ada, 55:00 left). Nothing was measured before." in text
    assert "None" not in text


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
    assert "Jobs on dgx1 can use each other's GPUs" in shown({"cluster": about, "validation": {}})


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
    text = shown({**outputs(), "rented": rented})
    for part in ("Rented machines", "gpu_1x in us-east-1: no capacity", "1.29 USD", "unknown"):
        assert part in text
    assert "Rented machines" not in shown(outputs())
