"""What the training example tells MLflow: two jobs of a user that begin at one moment both have a run there."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "examples" / "training" / "tracking.py"


class ErrorOfMlflow(Exception):
    """As MlflowException is: its word for what is wrong is an attribute."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.error_code = code


def soon(monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[[Callable[[], str]], str], list[float]]:
    naps: list[float] = []
    monkeypatch.setattr("time.sleep", naps.append)
    return runpy.run_path(str(PROGRAM))["soon"], naps


@pytest.mark.parametrize("code", ["RESOURCE_ALREADY_EXISTS", "PERMISSION_DENIED"])
def test_an_experiment_that_another_job_is_making_is_used_a_moment_later(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, naps = soon(monkeypatch)
    answers = iter(("", "", "run"))

    def answer() -> str:
        if not (found := next(answers)):
            raise ErrorOfMlflow(code)
        return found

    assert call(answer) == "run"
    assert len(naps) == 2


@pytest.mark.parametrize(("code", "tries"), [("PERMISSION_DENIED", 5), ("INTERNAL_ERROR", 1)])
def test_what_stays_wrong_or_will_not_change_is_told(code: str, tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    call, naps = soon(monkeypatch)

    def answer() -> str:
        raise ErrorOfMlflow(code)

    with pytest.raises(ErrorOfMlflow):
        call(answer)
    assert len(naps) == tries - 1
