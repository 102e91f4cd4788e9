"""Whoever uses a GPU that a measurement should have alone is named."""

from typing import Any

import pytest

from components.validation.model import JobReport
from components.validation.preflight import foreign
from components.validation.wording import beside

REPORT: dict[str, Any] = {"job_id": 1, "state": "COMPLETED", "exit_code": 0, "nodes": ["a"], "output": "", "seconds": 1}
TWO = "00000000:18:00.0, 97, 41230\n00000000:2A:00.0, 0, 4\n"


def asked(gpus: str | None, apps: str | None) -> foreign.Ask:
    return lambda *words: apps if "compute-apps" in words[0] else gpus


def test_a_foreign_process_is_named_with_its_memory_and_how_busy_the_gpu_is() -> None:
    (found,) = foreign.check_foreign(foreign.used(asked(TWO, "00000000:18:00.0, 4711, python3, train.py, 40500\n")))
    assert (found["severity"], found["check"]) == ("warning", "GPU in use")
    assert found["seen"].endswith(" is 97 % busy with 41230 MiB in use by 4711 python3, train.py (40500 MiB)")
    assert "ps -o user,pid" in found["remedy"]


def test_resource_use_identifies_a_process_outside_of_this_container() -> None:
    (found,) = foreign.used(asked(TWO, "")) or []
    assert str(found).endswith("is 97 % busy with 41230 MiB in use by processes that are not visible from here")


@pytest.mark.parametrize(
    ("gpus", "apps"),
    [(None, None), ("", ""), ("No devices were found, a, b\n", ""), (",,\n", ""), ("0:1, 0, 4\n", None)],
    ids=["fails", "nothing", "a sentence", "commas", "fails for processes"],
)
def test_a_driver_that_does_not_say_is_not_one_that_says_nothing_is_there(gpus: str | None, apps: str | None) -> None:
    assert foreign.used(asked(gpus, apps)) is None
    assert [each["severity"] for each in foreign.check_foreign(None)] == ["info"]


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        (["a: nothing is on its GPUs\n"] * 2, "No other use of its GPUs was seen"),
        (["a: nothing is on its GPUs\n", f"a: {foreign.NOT_KNOWN}\n"], "is unknown"),
        (["a: nothing is on its GPUs\n", ""], "is unknown"),
        (["", f"a: {foreign.NOT_KNOWN}\na: GPU 0:1 is 97 % busy\n"], "Other use of the GPUs: a: GPU 0:1"),
    ],
    ids=["nothing", "nvidia-smi fails", "nobody looked", "something"],
)
def test_that_nothing_else_was_there_is_said_of_an_answer_alone(looks: list[str], said: str) -> None:
    report = JobReport.from_json({**REPORT, "beside": looks})
    assert said in beside(report, 0)
    assert beside(report) == (beside(report, 0) if "Other use of the GPUs" in said else "")


def test_an_empty_gpu_is_no_unknown_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "a1")
    for found, line in (([], foreign.NOTHING), (None, foreign.NOT_KNOWN)):
        monkeypatch.setattr(foreign, "used", lambda found=found: found)
        assert foreign.main([]) == 0
        assert capsys.readouterr().out == f"a1: {line}\n"


def test_one_process_on_several_gpus_is_named_once() -> None:
    found = [
        foreign.Used("0000:19:00.0", 90, 2000, ("77 python (1800 MiB)",)),
        foreign.Used("0000:3B:00.0", 95, 2100, ("77 python (1900 MiB)",)),
        foreign.Used("0000:4C:00.0", 10, 3000, ()),
        foreign.Used("0000:5D:00.0", 10, 3000, ()),
    ]
    first, *hidden = foreign.sentences(found)
    assert first == "GPUs 0000:19:00.0, 0000:3B:00.0 are up to 95 % busy with up to 2100 MiB in use by 77 python"
    assert len(hidden) == 2
