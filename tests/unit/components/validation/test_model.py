"""Settings that cannot be measured, and job reports that cannot be read, are refused with a reason."""

from typing import Any

import pytest

from components.validation.model import JobReport, Measurement

SETTINGS: dict[str, Any] = {
    "backend": "nccl-tests",
    "min_bytes": 1024,
    "max_bytes": 16384,
    "factor": 4,
    "iterations": 20,
    "warmup": 5,
    "gate_bytes": 16384,
    "ranks": 2,
    "nodes": 2,
}
REPORT = {"job_id": 17, "state": "COMPLETED", "exit_code": "0:0", "seconds": 4.5, "nodes": ["a", "b"], "output": "text"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "gloo"}, "backend"),
        ({"min_bytes": 1022}, "min_bytes"),
        ({"gate_bytes": 8192}, "gate_bytes is 8192, which is not measured"),
        ({"iterations": 0}, "iterations"),
        ({"warmup": -1}, "warmup"),
        ({"nodes": 0}, "nodes"),
        ({"ranks": 1, "nodes": 1}, "ranks"),
        ({"ranks": 2, "nodes": 3}, "ranks"),
        ({"floor_gb_per_s": 0.0}, "floor_gb_per_s"),
        ({"floor_gb_per_s": float("nan")}, "floor_gb_per_s"),
        ({"factor": 1}, "factor"),
    ],
)
def test_settings_that_cannot_be_judged_are_refused_by_name(change, message):
    with pytest.raises(ValueError, match=message):
        Measurement(**{**SETTINGS, **change})


def test_a_job_report_is_read_from_json():
    report = JobReport.from_json({**REPORT, "node_states": "a down*", "facts": {"nvidia_peermem": "loaded"}})
    assert report == JobReport(
        job_id=17,
        state="COMPLETED",
        exit_code=0,
        signal=0,
        seconds=4.5,
        nodes=("a", "b"),
        output="text",
        node_states="a down*",
        facts={"nvidia_peermem": "loaded"},
    )


@pytest.mark.parametrize(
    ("value", "code", "signal"), [("7:0", 7, 0), ("0:9", 0, 9), (7, 7, 0), ("7", 7, 0), (None, None, None)]
)
def test_the_exit_code_is_read_in_each_of_slurms_forms(value, code, signal):
    report = JobReport.from_json({**REPORT, "exit_code": value})
    assert (report.exit_code, report.signal) == (code, signal)


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": "seventeen"},
        {"job_id": True},
        {"state": 3},
        {"exit_code": "x:y"},
        {"exit_code": 1.5},
        {"seconds": "long"},
        {"seconds": -1},
        {"nodes": "a,b"},
        {"nodes": [""]},
        {"output": None},
        {"node_states": None},
        {"facts": {"links": 3}},
    ],
)
def test_a_job_report_with_a_damaged_value_is_refused_by_the_name_of_its_key(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        JobReport.from_json({**REPORT, **change})


def test_a_job_report_that_is_no_object_is_refused():
    with pytest.raises(ValueError, match="JSON object"):
        JobReport.from_json(["COMPLETED"])  # type: ignore[arg-type]
