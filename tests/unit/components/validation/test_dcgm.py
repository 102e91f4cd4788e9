"""The output of dcgmi diag and of DCGM's health watches. A check that cannot run reports UNJUDGED."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.validation.preflight import collect
from components.validation.preflight.dcgm import COMMAND, check_watches, diagnose, diagnosed, findings_of
from components.validation.preflight.findings import CommandResult, read_lines


def output(status: str, *warnings: dict[str, Any], name: str = "DCGM Diagnostic") -> str:
    result = {"entity_group": "GPU", "entity_id": 3, "status": status, "warnings": list(warnings)}
    tests = [{"name": "memory", "results": [{**result, "entity_id": 2, "status": "Pass"}, result]}]
    return json.dumps({name: {"test_categories": [{"category": "Hardware", "tests": tests}]}, "metadata": {}})


def warning(severity: int) -> dict[str, Any]:
    return {"error_id": 1, "error_category": 4, "error_severity": severity, "warning": "GPU 3 had errors"}


@pytest.mark.parametrize(
    ("text", "severity", "seen"),
    [
        (output("Fail", warning(2)), "error", "dcgmi diag -r 2: memory on GPU 3: GPU 3 had errors"),
        (output("Fail", warning(5), warning(6)), "error", "GPU 3 had errors"),
        (output("Fail", warning(2), name="DCGM GPU Diagnostic"), "error", "memory on GPU 3"),
        ("a line before it\n" + output("Fail", warning(2)), "error", "memory on GPU 3"),
        (output("Fail", warning(1)), "warning", "memory on GPU 3"),
        # Settings, what is not known, and a DCGM that does not know this driver.
        (output("Fail", warning(5)), "info", "UNJUDGED"),
        (output("Fail", warning(3)), "info", "UNJUDGED"),
        (output("Fail"), "info", "UNJUDGED"),
        ("Error: unable to establish a connection to the specified host: localhost", "info", "localhost"),
        ("", "info", "UNJUDGED: dcgmi diag -r 2 gave no result: it printed nothing"),
        ('{"DCGM Diagnostic": {"runtime_error": "driver"}}', "info", "UNJUDGED"),
        ('{"DCGM Diagnostic": {"test_categories": []}}', "info", "ran no test"),
    ],
)
def test_dcgms_own_severity_decides_the_level_of_a_finding(text: str, severity: str, seen: str) -> None:
    (found,) = findings_of(text, 2)
    assert found["severity"] == severity
    assert seen in found["seen"]


def changed(**changes: Any) -> str:
    """An answer in which DCGM would isolate a GPU, with something else in the place of one of its parts."""
    whole: dict[str, Any] = json.loads(output("Fail", warning(2)))
    (category,) = whole["DCGM Diagnostic"]["test_categories"]
    category["tests"][0].update(changes)
    return json.dumps(whole)


BAD_RESULT = {"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [None, warning(2)]}


@pytest.mark.parametrize(
    "text",
    [
        changed(results=[None, BAD_RESULT]),
        changed(results=["a sentence", BAD_RESULT]),
        changed(results=[{**BAD_RESULT, "warnings": [{**warning(2), "error_severity": "2"}]}]),
        changed(results=[{**BAD_RESULT, "status": "FAILED"}]),
        changed(results=None, test_summary=BAD_RESULT),
        changed(results=[{"status": None}, BAD_RESULT]),
        json.dumps({"DCGM Diagnostic": {
            "test_categories": None, "tests": [{"name": "memory", "results": [BAD_RESULT]}]}}),
        json.dumps({"DCGM Diagnostic": {"test_categories": [None, {"tests": None}, {"tests": [
            None, {"name": None, "results": [{"status": "Pass"}]}, {"name": "memory", "results": [BAD_RESULT]}]}]}}),
        "WARNING: {no JSON}\n" + changed(),
        "{}\n" + changed() + "\nError: the host engine ends\n{",
    ],
    ids=[
        "null in results", "sentence in results", "severity as text", "another word", "summary alone", "status null",
        "no categories", "nulls on every level", "warning before it", "words after it",
    ],
)  # fmt: skip
def test_a_gpu_that_dcgm_would_isolate_is_always_an_error(text: str) -> None:
    (found,) = findings_of(text, 2)
    assert (found["severity"], found["remedy"]) == ("error", "isolate the GPU, as DCGM recommends")
    assert "memory on GPU 3: GPU 3 had errors" in found["seen"]


def test_an_answer_that_is_cut_off_still_says_which_gpu_is_to_be_isolated() -> None:
    found = findings_of(changed()[: changed().index("}]}]}]") + 3], 2)
    assert [each["severity"] for each in found] == ["error", "info"]
    assert "is cut off" in found[1]["seen"]


@pytest.mark.parametrize("length", range(0, len(changed()), 7))
def test_an_answer_that_is_cut_off_anywhere_is_never_silent(length: int) -> None:
    assert findings_of(changed()[:length], 2)


def test_a_node_without_dcgmi_is_unjudged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert COMMAND in collect.commands(), "the name that the check reads"
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = diagnosed(2, 5)
    assert found["seen"] == "UNJUDGED: the node has no dcgmi"


def test_a_hanging_one_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "dcgmi"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURMD_NODENAME", "a1")
    assert diagnose(['{"dcgm_level": 2, "dcgm_seconds": 0.2}']) == 0
    (found,) = read_lines(capsys.readouterr().out)["a1"]
    assert found["seen"] == "UNJUDGED: dcgmi diag -r 2 did not end within 0.2 s"


MESSAGE = ["Detected 12 NvLink errors on GPU 3's NVLink,", "which exceeds threshold"]
SYSTEM = {"NVLINK system": {"overflow": MESSAGE, "value": "Failure"}}
GPU_3 = {"children": {"Errors": {"children": SYSTEM}}, "value": "Failure"}
BODY = {"GPU": {"children": {"3": GPU_3}}, "Overall Health": {"value": "Failure"}}
FAILURE = {"body": BODY, "header": ["Health Monitor Report"]}
HEALTHY = {"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]}


def seen(output: str, status: int | None = 0) -> list[str]:
    found = list(check_watches(CommandResult(status, output)))
    assert all(item["severity"] != "error" for item in found)
    return [f"{item['severity']} {item['seen']}" for item in found]


def test_each_part_that_dcgm_does_not_call_healthy_is_a_warning() -> None:
    (text,) = seen(json.dumps(FAILURE))
    assert text == f"warning GPU 3: NVLINK system: Failure: {' '.join(MESSAGE)}"
    assert seen(json.dumps(HEALTHY)) == seen("", 127) == list(check_watches(None)) == []


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("Error: Health watches not enabled. Please enable watches. \n", "DCGM watches nothing"),
        ("Error: Unable to connect to host engine. Host engine connection invalid", "dcgmi health prints"),
        ("", "dcgmi health prints 'nothing'"),
        ('{"body": {"GPU": 7}}', ""),
        ('{"body": {"Overall Health": {"val', ""),
    ],
)
def test_another_answer_is_unjudged(output: str, said: str) -> None:
    (text,) = seen(output, 1)
    assert text.startswith(f"info UNJUDGED: {said}")
