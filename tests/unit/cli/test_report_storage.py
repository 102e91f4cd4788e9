"""The storage measurement in the terminal, on the page and in the exit status of `make up`."""

from typing import Any

import pytest

from cli.report import overall
from cli.report.page import page
from components.validation.storage_figures import line_of
from components.validation.storage_verdict import judge_storage
from tests.unit.cli.test_report import shown as terminal

RUNS = {
    "write_mb_per_s": [1234, 1234, 1300],
    "read_mb_per_s": [45.678] * 3,
    "files_per_s": [92] * 3,
    "latency_us": [970] * 3,
    "latency_p99_us": [2703] * 3,
}
EVIL = "</td><script>alert(1)</script>[/red]\x1b[2J"


def outputs(floor: float | None = None, problem: str = "", **changes: Any) -> dict[str, Any]:
    lines = [line_of("l1", "share", runs=dict(RUNS), direct=True, file_system="nfs4")]
    lines += [line_of("l2", "share", problem=problem) if problem else line_of("l2", "share", runs=dict(RUNS))]
    report = {
        "job_id": 7, "state": "COMPLETED", "exit_code": 0, "seconds": 20, "nodes": ["l1", "l2"],
        "measured_at": 1_790_000_000, "output": "\n".join(lines), **changes,
    }  # fmt: skip
    paths = {node: {"share": "/shared"} for node in ("l1", "l2")}
    floors = {} if floor is None else {node: {"share": {"read_mb_per_s": floor}} for node in paths}
    facts = {"tailnet_ip": "100.64.0.1", "cpus": 2, "memory_mb": 1024, "gpus": 0, "slurm_version": "24.11.5"}
    head = {"name": "head", "site": "rack", "path": "self", "tailscale_version": "1.102.5", **facts}
    cluster = {"name": "lab", "control_address": "100.64.0.1", "nodes": [head], "partitions": ["all"]}
    return {"cluster": cluster, "validation": {}, "storage": judge_storage(report, paths, floors, 2**30)}


def words(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def test_terminal_and_page_show_the_figures_of_each_node() -> None:
    shown = outputs(floor=40)
    text = words(terminal(shown))
    assert "Storage, a file of 1 GiB by fio" in text
    assert "l1 share (/shared) 1,234 45.7 (least 40) 92 970 2,703 5% direct, nfs4 PASS" in text
    assert "PASS Storage on l1, l2 is within the floors." in text
    html = page(shown, "lab", "today")
    for cell in ("share (/shared)", "1,234", "45.7 (least 40)", "direct, nfs4"):
        assert f">{cell}</td>" in html


@pytest.mark.parametrize(
    ("shown", "verdict", "fails"),
    [
        (outputs(), "UNJUDGED", False),
        (outputs(floor=40), "PASS", False),
        (outputs(floor=50), "FAIL", True),
        (outputs(problem="/shared is full"), "INCONCLUSIVE", True),
    ],
)
def test_the_verdict_decides_the_exit_status(shown: dict[str, Any], verdict: str, fails: bool) -> None:
    assert overall.overall(shown) == verdict
    assert overall.bad(shown) == (["storage"] if fails else [])


@pytest.mark.parametrize(("retries", "fails"), [(0, False), (2, True)])
def test_nodes_that_are_busy_three_times_in_a_row_were_not_measured(retries: int, fails: bool) -> None:
    shown = outputs(state="BUSY", nodes=[], left_out=["l1"])
    shown["storage"]["retries"] = retries
    assert "Storage: not measured" in terminal(shown)
    assert overall.bad(shown) == (["storage"] if fails else [])


def test_every_node_that_fails_is_named_with_its_reason_as_text() -> None:
    shown = outputs(floor=50, problem="/shared is full")
    for text in (terminal(shown), page(shown, "lab", "today")):
        assert "share on l2: /shared is full." in text
    hostile = outputs(problem=EVIL)
    assert "\x1b" not in terminal(hostile)
    assert "<script>" not in page(hostile, "lab", "today")
