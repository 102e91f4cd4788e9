"""The training benchmark's output, and what is made of it."""

import io
import json
from typing import Any

import pytest

from components.validation import job_runs
from components.validation.training_verdict import judge_training
from components.validation.wording import percents

BEGIN = {
    "version": 1, "ranks": 2, "hosts": ["a1", "b1"], "devices": ["CPU"], "on_gpus": False, "torch": "2.6.0",
    "runs": 3, "width": 16, "pixels": 32, "batch": 32, "precision": "fp32",
}  # fmt: skip


def printed(steps: tuple[float, ...] = (0.5, 0.5, 0.5), **last: Any) -> str:
    """An output whose three runs have steps of so many seconds; `last` is said otherwise of the third run."""
    runs = [{"run": at, "seconds": [each] * 20, "alike": True, "loss": 1.5} for at, each in enumerate(steps, 1)]
    runs[-1] |= last
    told = [("begin", BEGIN), *(("run", run) for run in runs), ("end", {"runs": len(runs)})]
    return "a warning of PyTorch\n" + "".join(f"tailrack-training {word} {json.dumps(each)}\n" for word, each in told)


def report(output: str, **other: Any) -> dict[str, Any]:
    """What the head node brings back of a job that came to its end."""
    asked = {"nodes": 2, "ranks": 2, "on_gpus": False, "spans": True}
    done = {"job_id": 7, "state": "COMPLETED", "exit_code": 0, "seconds": 20, "nodes": ["a1", "b1"]}
    return {**done, "asked": asked, "measured_at": 1_790_000_000, "output": output, **other}


def test_the_figure_is_that_of_the_step_in_the_middle_of_the_run_in_the_middle() -> None:
    result = judge_training(report(printed((0.5, 0.4, 0.48))), None)
    assert result["images_per_second"] == pytest.approx(64 / 0.48)
    assert result["images_per_second_per_rank"] == pytest.approx(32 / 0.48)
    assert (result["verdict"], result["device"], result["jitter"]) == ("UNJUDGED", "CPU", 0)
    # A job that is killed in its third run, after two were completed, has no figure.
    killed = {"state": "CANCELLED", "exit_code": 0, "signal": 9}
    for ended in ({"state": "FAILED", "exit_code": 1}, killed):
        result = judge_training(report("".join(printed().splitlines(True)[:4]), **ended), None)
        assert result["verdict"] == "FAIL"
        assert (result["images_per_second"], result["images_per_second_per_rank"]) == (None, None)


@pytest.mark.parametrize(
    ("told", "floor", "verdict", "said"),
    [
        (report(printed()), None, "UNJUDGED", "no floor is known for this hardware"),
        (report(printed()), 60.0, "PASS", "64.0 images per second and node (on its CPUs)"),
        (report(printed()), 70.0, "FAIL", "below the floor of 70"),
        (report(printed((0.5, 0.3, 0.5))), 1.0, "UNSTABLE", "differ by 67%, more than 30%; run 2 is the fast one."),
        (report(printed((0.5, 0.5, 0.9))), 1.0, "UNSTABLE", "run 3 is the slow one."),
        (
            report(printed((0.5, 0.5, 0.9)), beside=["", "a1: GPU 0: python3 of bob (pid 77)\n"]),
            1.0, "UNSTABLE", "Other use of the GPUs: a1: GPU 0: python3 of bob (pid 77).",
        ),
        (
            report(printed(), beside=["a1: GPU 0: python3 of bob (pid 77)\n", ""]),
            70.0, "FAIL", "Other use of the GPUs: a1: GPU 0: python3 of bob (pid 77).",
        ),
        (report(printed(alike=False)), 1.0, "FAIL", "wrong in run 3"),
        (report(printed(loss=None)), 1.0, "FAIL", "wrong in run 3"),
        (report(printed((0.5, 0.5))), 1.0, "INCONCLUSIVE", "2 of 3 runs"),
        (report(printed(seconds=[-1])), 1.0, "INCONCLUSIVE", "a line 'run' cannot be read"),
        (report("", state="TIMEOUT", exit_code=1), 1.0, "FAIL", "state TIMEOUT"),
        (report("", state="BUSY", left_out=["a1"]), 1.0, "BUSY", "Other jobs are on a1"),
        (report("", state="UNAVAILABLE", left_out=["a1"]), 1.0, "INCONCLUSIVE", "a1 cannot run a job"),
        ({"state": 5}, 1.0, "INCONCLUSIVE", "cannot be read"),
        (
            report("tailrack-training-missing b1\ntailrack-training-missing a1\n", state="FAILED", exit_code=3),
            None, "INCONCLUSIVE", "PyTorch is missing on a1, b1. Set tailrack:validation.training.python",
        ),
    ],
)  # fmt: skip
def test_the_verdict_and_its_reason(told: dict[str, Any], floor: float | None, verdict: str, said: str) -> None:
    result = judge_training(told, floor)
    assert result["verdict"] == verdict, result["reason"]
    assert said in result["reason"]
    assert verdict not in ("INCONCLUSIVE", "BUSY") or result["images_per_second"] is None


@pytest.mark.parametrize(("transport", "verdict"), [("NET/Socket/0", "PASS"), ("NET/IB/0", "UNSTABLE")])
def test_training_over_sockets_inside_a_site_may_differ_like_bandwidth_over_it(transport: str, verdict: str) -> None:
    output = printed((0.5, 0.5, 0.6)).replace('"on_gpus": false', '"on_gpus": true')
    log = f"a1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via {transport}\n"
    asked = {"nodes": 2, "ranks": 2, "on_gpus": True, "spans": False}
    result = judge_training(report(output, log=log, asked=asked, first_runs=[1.0, 2.0, 3.0]), 1.0)
    assert result["verdict"] == verdict, result["reason"]
    assert (
        "the first runs gave 1.0, 2.0, 3.0" in result["reason"] or "the runs of the first gave 1.0" in result["reason"]
    )


def test_training_that_scatters_is_measured_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = iter([printed((0.5, 0.5, 0.9)), printed()])

    def run_jobs(*_: Any) -> list[dict[str, Any]]:
        return [{**report(next(outputs)), "files": {"beside.1": "", "log.1": ""}}]

    nodes = {"a1": "", "b1": ""}
    limits = {"start_seconds": 1, "run_seconds": 60}
    plan = {"scope": "x", "job": "", "sites": dict.fromkeys(nodes, "rack"), "gpus": nodes}
    task = {"plan": {**plan, **limits}, "nodes": [*nodes], "absent": {}}
    stdout = io.StringIO()
    monkeypatch.setattr(job_runs, "run_jobs", run_jobs)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(task)))
    monkeypatch.setattr("sys.stdout", stdout)
    assert job_runs.measure_training([]) == 0
    result = judge_training(json.loads(stdout.getvalue()), 1.0)
    assert (result["verdict"], next(outputs, None)) == ("PASS", None), result["reason"]
    assert "in a second measurement (the runs of the first gave 128.0, 128.0, 71.1)" in result["reason"]


@pytest.mark.parametrize(
    ("value", "limit", "texts"),
    [(0.67, 0.3, ("67%", "30%")), (0.1512, 0.15, ("15.1%", "15.0%")), (0.15004, 0.15, ("15.004%", "15.000%"))],
)
def test_percentages_that_would_print_alike_get_more_digits(value: float, limit: float, texts: tuple[str, str]) -> None:
    assert percents(value, limit) == texts
