"""Settings that cannot be measured, and job reports that cannot be read, are refused with a reason."""

from typing import Any

import pytest

from components.validation.model import JobReport, Measurement

SIZES = {"min_bytes": 1024, "max_bytes": 16384, "factor": 4, "gate_bytes": 16384}
SETTINGS: dict[str, Any] = {"backend": "nccl-tests", **SIZES, "iterations": 20, "warmup": 5, "ranks": 2, "nodes": 2}
REPORT = {"job_id": 17, "state": "COMPLETED", "exit_code": 0, "seconds": 4.5, "nodes": ["a", "b"], "output": "text"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "gloo"}, "backend"),
        ({"min_bytes": 1022}, "min_bytes"),
        ({"gate_bytes": 8192}, "gate_bytes is 8192"),
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
    more: dict[str, Any] = {"node_states": "a down*", "facts": {"nvidia_peermem": "loaded"}}
    expected = {**REPORT, **more, "nodes": ("a", "b")}
    assert JobReport.from_json({**REPORT, **more}) == JobReport(**expected)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("job_id", ["seventeen", True]),
        ("state", [3]),
        ("exit_code", ["x:y", 1.5]),
        ("seconds", ["long", -1]),
        ("nodes", ["a,b", [""]]),
        ("output", [None]),
        ("node_states", [None]),
        ("facts", [{"links": 3}]),
    ],
)
def test_a_job_report_with_a_damaged_value_is_refused_by_the_name_of_its_key(key, values):
    for value in values:
        with pytest.raises(ValueError, match=key):
            JobReport.from_json({**REPORT, key: value})
    with pytest.raises(ValueError, match="JSON object"):
        JobReport.from_json(["COMPLETED"])  # type: ignore[arg-type]
