"""The history of a scope's measurements: what is added, what takes another's place, and what is none."""

from typing import Any

import pytest

from components.validation.results import MOST, extended

FIRST = {"measured_at": "2026-11-20T08:00:00Z", "busbw_gb_per_s": 40.0, "floor_gb_per_s": 36.0, "verdict": "PASS"}
ONE = {**FIRST, "nodes": 2}


def result(**changes: Any) -> dict[str, Any]:
    return {**FIRST, "nodes": ["a", "b"], "reason": "whatever", "rows": [], **changes}


def test_another_measurement_is_added_and_the_same_is_not() -> None:
    later = result(measured_at="2026-11-21T08:00:00Z", busbw_gb_per_s=None, verdict="FAIL")
    found = extended([{**ONE, "nodes": 2.0}], later)  # as stack outputs have numbers
    assert [each["busbw_gb_per_s"] for each in found] == [40.0, None]
    assert extended(found, later) == found


def test_a_verdict_with_another_floor_replaces_its_own_entry() -> None:
    assert extended([ONE], result(floor_gb_per_s=45.0, verdict="FAIL")) == [
        {**ONE, "floor_gb_per_s": 45.0, "verdict": "FAIL"}
    ]


@pytest.mark.parametrize("before", [None, {}, "x", [None, 7, {"verdict": "PASS"}], [{**ONE, "measured_at": "x"}]])
def test_history_ignores_entries_that_no_earlier_run_can_have_written(before: Any) -> None:
    assert extended(before, result()) == [ONE]


def test_it_is_bounded_and_the_oldest_go_first() -> None:
    found: list[Any] = []
    for number in range(MOST + 5):
        found = extended(found, result(measured_at=f"2026-11-20T{number // 60:02}:{number % 60:02}:00Z"))
    assert len(found) == MOST
    assert found[0]["measured_at"] == "2026-11-20T00:05:00Z"
    assert len(extended(found, result(), 3)) == 3
