"""DCGM's health watches: what `dcgmi health -g 0 -c -j` prints, in the form that its source (Health.cpp) writes."""

from __future__ import annotations

import json

import pytest

from components.validation.preflight import collect
from components.validation.preflight.dcgm import COMMAND, check_watches
from components.validation.preflight.health import CommandResult

MESSAGE = ["Detected 12 NvLink errors on GPU 3's NVLink,", "which exceeds threshold"]
FAILURE = {
    "body": {
        "GPU": {
            "children": {
                "3": {
                    "children": {"Errors": {"children": {"NVLINK system": {"overflow": MESSAGE, "value": "Failure"}}}},
                    "value": "Failure",
                }
            }
        },
        "Overall Health": {"value": "Failure"},
    },
    "header": ["Health Monitor Report"],
}
HEALTHY = {"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]}


def seen(output: str, status: int | None = 0) -> list[str]:
    found = list(check_watches(CommandResult(status, output)))
    assert all(item["severity"] != "error" for item in found)
    return [f"{item['severity']} {item['seen']}" for item in found]


def test_each_part_that_dcgm_does_not_call_healthy_is_a_warning() -> None:
    (text,) = seen(json.dumps(FAILURE))
    assert text == f"warning GPU 3: NVLINK system: Failure: {' '.join(MESSAGE)}"


def test_healthy_gpus_and_a_node_without_dcgm_have_no_finding() -> None:
    assert seen(json.dumps(HEALTHY)) == []
    assert seen("", 127) == []
    assert list(check_watches(None)) == []


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("Error: Health watches not enabled. Please enable watches. \n", "info UNJUDGED: DCGM watches nothing"),
        (
            "Error: Unable to connect to host engine. Host engine connection invalid",
            "info UNJUDGED: dcgmi health prints",
        ),
        ("", "info UNJUDGED: dcgmi health prints 'nothing'"),
        ('{"body": {"GPU": 7}}', "info UNJUDGED"),
        ('{"body": {"Overall Health": {"val', "info UNJUDGED"),
    ],
)
def test_another_answer_is_unjudged(output: str, said: str) -> None:
    (text,) = seen(output, 1)
    assert text.startswith(said)


@pytest.mark.parametrize("part", [7, None, "x", [], {"children": 7}, {"children": {"0": {"children": {"Errors": []}}}}])
def test_a_part_of_another_form_is_left_out(part: object) -> None:
    assert seen(json.dumps({"body": {"Overall Health": {}, "GPU": part}})) == []


def test_the_collector_asks_dcgm_under_the_name_that_the_check_reads() -> None:
    assert COMMAND in collect.commands()
