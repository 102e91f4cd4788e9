"""The storage measurement's output by node and target, and its verdict."""

from typing import Any

import pytest

from components.validation.storage_figures import FIGURES, line_of, read_storage
from components.validation.storage_verdict import judge_storage

PATHS = {node: {"share": "/shared", "scratch": "/scratch"} for node in ("l1", "l2")}
RUNS = {
    "write_mb_per_s": [100, 90, 110],
    "read_mb_per_s": [200, 200, 200],
    "files_per_s": [50, 40, 60],
    "latency_us": [300, 300, 350],
    "latency_p99_us": [900, 950, 900],
}


def output(**by_node: dict[str, Any]) -> str:
    """The lines of a job in which each node reports both targets. `by_node` changes a node's figures of the share."""
    lines = ["a message of srun"]
    for node in PATHS:
        change = dict(by_node.get(node, {}))
        share: dict[str, Any] = {name: change.pop(name) for name in ("problem", "read_only") if name in change}
        share |= {} if "problem" in share else {"runs": {**RUNS, **change}}
        lines += [line_of(node, "scratch", runs=RUNS, direct=True), line_of(node, "share", direct=False, **share)]
    return "\n".join(lines)


def report(text: str, **other: Any) -> dict[str, Any]:
    ended = {"job_id": 7, "state": "COMPLETED", "exit_code": 0, "seconds": 20, "nodes": [*PATHS]}
    return {**ended, "measured_at": 1_790_000_000, "output": text, **other}


def judged(step_report: Any, **share: float) -> Any:
    return judge_storage(step_report, PATHS, {node: {"share": share} for node in PATHS}, 2**30)


def test_each_figure_is_the_median_of_three_runs_with_its_spread() -> None:
    result = judged(report(output()))
    share = result["nodes"]["l1"]["share"]
    assert [share[name] for name in FIGURES] == [100, 200, 50, 300]
    assert share["latency_p99_us"] == 900
    assert share["spread"]["write_mb_per_s"] == {"runs": [100, 90, 110], "relative": 0.2}
    assert (share["direct"], share["path"], share["written_by"]) == (False, "/shared", None)
    assert (result["verdict"], result["job_id"], result["size_bytes"]) == ("UNJUDGED", 7, 2**30)


def test_a_checkpoint_takes_as_long_as_its_slowest_node() -> None:
    def part(node: str, target: str, seconds: float) -> str:
        saved = {"save_ranks": 4, "save_bytes": 2**33, "save_seconds": seconds}
        restored = {"restore_ranks": 4, "restore_bytes": 2**33, "restore_seconds": 2}
        return "\n".join(line_of(node, target, checkpoint=each) for each in (saved, restored))

    lines = [output(), part("l1", "share", 8), part("l2", "share", 10), part("l1", "/etc/passwd", 1)]
    result = judged(report("\n".join(lines)))
    (share,) = result["checkpoint"].values()
    assert (share["bytes"], share["ranks"], share["save_seconds"]) == (2**34, 8, 10)
    assert share["save_gb_per_s"] == pytest.approx(2**34 / 10e9)
    assert result["reason"].endswith(
        "A checkpoint of 16 GiB by 8 ranks on share was saved in 10 s (1.72 GB/s) and restored in 2 s (8.59 GB/s)."
    )
    half = "\n".join([output(), line_of("l1", "share", checkpoint={"save_seconds": 3})])
    assert judged(report(half))["checkpoint"] == {}


@pytest.mark.parametrize(
    ("floors", "change", "verdict", "reason"),
    [
        ({}, {}, "UNJUDGED", "Measured storage on l1, l2; the config has no floors."),
        ({"read_mb_per_s": 200, "latency_us": 300}, {}, "UNJUDGED", "scratch on l1: the config has no floor."),
        (
            {"read_mb_per_s": 150}, {"read_mb_per_s": [120] * 3}, "FAIL",
            "share on l2: 120 MB/s read, below the floor of 150.",
        ),
        (
            {"latency_us": 500}, {"latency_us": [800] * 3}, "FAIL",
            "share on l2: 800 us of latency, above the limit of 500.",
        ),
        (
            {"write_mb_per_s": 90}, {"write_mb_per_s": [40, 100, 110]}, "UNSTABLE",
            "share on l2: 100 MB/s written, but the runs gave 40, 100, 110, on both sides of 90.",
        ),
        ({"write_mb_per_s": 30}, {"write_mb_per_s": [40, 100, 110]}, "UNJUDGED", "scratch on l1"),
        ({}, {"problem": "/shared is full"}, "INCONCLUSIVE", "share on l2: /shared is full."),
        ({}, {"files_per_s": [1, 2]}, "INCONCLUSIVE", "share on l2: not measured: small files/s."),
        ({}, {"read_only": True, "write_mb_per_s": [], "files_per_s": []}, "UNJUDGED", "no floors"),
        ({}, {"problem": "no readable file", "read_only": True}, "UNJUDGED", "no floors"),
        (
            {"write_mb_per_s": 1}, {"read_only": True, "write_mb_per_s": [], "files_per_s": []}, "INCONCLUSIVE",
            "share on l2: not measured because it is read-only: MB/s written.",
        ),
        # A figure below its floor is a fact, whatever else is missing.
        ({"read_mb_per_s": 300}, {"files_per_s": []}, "FAIL", "share on l1: 200 MB/s read"),
    ],
)  # fmt: skip
def test_the_worst_verdict_counts(floors: dict[str, float], change: dict[str, Any], verdict: str, reason: str) -> None:
    result = judged(report(output(l2=change)), **floors)
    assert result["verdict"] == verdict
    assert reason in result["reason"]


def test_a_node_that_is_out_is_named_and_the_others_are_judged() -> None:
    step_report = report(output(), nodes=["l1"], left_out=["l2"], absent={"l2": "down: no answer"})
    result = judged(step_report)
    assert result["nodes"].keys() == {"l1"}
    assert result["reason"].endswith("Not measured: l2 (down: no answer).")


def test_busy_nodes_are_measured_by_the_next_up() -> None:
    nothing: dict[str, Any] = {"state": "BUSY", "job_id": None, "exit_code": None, "nodes": []}
    result = judged(report("", **nothing, left_out=["l1"], facts={"l1": "job 3 of bob"}))
    assert (result["verdict"], result["nodes"]) == ("BUSY", {})
    assert "Other jobs are on l1 (l1: job 3 of bob)" in result["reason"]


def test_a_job_that_was_cancelled_fails_and_its_figures_stay() -> None:
    text = "\n".join(line for line in output().splitlines() if '"l2"' not in line)
    result = judged(report(text, state="CANCELLED", exit_code=0))
    assert result["verdict"] == "FAIL"
    assert "state CANCELLED" in result["reason"]
    assert result["nodes"]["l1"]["share"]["read_mb_per_s"] == 200
    assert result["nodes"]["l2"]["share"]["reason"] == "share on l2: the node reported no figure."


@pytest.mark.parametrize(
    "step_report",
    [{}, {"state": 5}, None, [], report("x", nodes=["../x"]), report("x", exit_code="y"), report("x", nodes=3)],
)
def test_a_report_that_cannot_be_read_is_inconclusive(step_report: Any) -> None:
    result = judged(step_report)
    assert result["verdict"] == "INCONCLUSIVE"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "5", '{"node": "l1"}', "[" * 100_000),
        *(
            f'{{"node": "l1", "target": "share", "runs": {runs}}}'
            for runs in ("5", *(f'{{"read_mb_per_s": {each}}}' for each in ("5", '["fast"]', "[NaN, -1, 1e999]")))
        ),
    ],
)
def test_a_line_that_cannot_be_read_gives_no_figure(text: str) -> None:
    assert not any(figures.runs for figures in read_storage(f"tailrack-storage {text}").values())


def test_text_of_a_node_is_short_and_on_one_line() -> None:
    figures = read_storage(line_of("l1", "share", problem="a\nb" + "c" * 9999))["l1", "share"]
    assert figures.problem.startswith("a bccc")
    assert len(figures.problem) == 400


def test_lines_of_two_nodes_that_srun_put_on_one_are_both_read() -> None:
    lines = "".join(line_of(node, "share", problem="the folder tailrack-storage is full") for node in ("l1", "l2"))
    assert [*read_storage(f"srun: {lines}\n")] == [("l1", "share"), ("l2", "share")]
