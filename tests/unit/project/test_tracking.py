"""What the training example tells MLflow: jobs that begin at one moment, and an MLflow that does not take it."""

import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

Capture = pytest.CaptureFixture[str]
PROGRAM = Path(__file__).parents[3] / "examples" / "training" / "tracking.py"


class ErrorOfMlflow(Exception):
    """As MlflowException is: its word for what is wrong is an attribute."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.error_code = code


def soon(monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[[Callable[[], str]], str], list[float]]:
    naps: list[float] = []
    call = runpy.run_path(str(PROGRAM))["soon"]
    # Of the program alone: threads of other tests may sleep now.
    monkeypatch.setitem(call.__globals__, "time", SimpleNamespace(sleep=naps.append))
    return call, naps


@pytest.mark.parametrize("code", ["RESOURCE_ALREADY_EXISTS", "PERMISSION_DENIED"])
def test_an_experiment_that_another_job_makes_is_used_later(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, naps = soon(monkeypatch)
    answers = iter(("", "", "run"))

    def answer() -> str:
        if not (found := next(answers)):
            raise ErrorOfMlflow(code)
        return found

    assert call(answer) == "run"
    assert len(naps) == 2


# A fake MLflow: it makes a run, and answers all other calls with the error in FAKE_SAYS.
FAKE_MLFLOW = """
import os
from types import SimpleNamespace as Named

class MlflowClient:
    def get_experiment_by_name(self, name):
        return Named(experiment_id=name)

    def create_run(self, experiment):
        return Named(info=Named(run_id="run of " + experiment))

    def __getattr__(self, name):
        def told(*words, **more):
            with open(os.environ["FAKE_TOLD"], "a") as file:
                print(name, file=file)
            if os.environ["FAKE_SAYS"]:
                raise OSError(os.environ["FAKE_SAYS"])
        return told
"""


@pytest.fixture
def fake_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The fake in MLflow's place; the file has a line for each call."""
    package, told = tmp_path / "packages" / "mlflow", tmp_path / "told"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE_MLFLOW)
    (package / "entities.py").write_text("Param = Metric = lambda *words: words\n")
    told.touch()
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("FAKE_TOLD", str(told))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://100.64.0.1:5000")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ada")
    yield told
    for name in ("mlflow", "mlflow.entities"):
        sys.modules.pop(name, None)


def train(folder: Path) -> None:
    """Tell it what a training tells it."""
    run = runpy.run_path(str(PROGRAM))["Tracking"](folder, {"model": "small"}, rank=0)
    for step in range(3):
        run.loss(step, 0.5)
        run.send(images_per_second=(step, 100.0))
    run.end(folder / "step-3.pt")


def test_a_training_reports_its_settings_and_its_result(
    fake_mlflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("FAKE_SAYS", "")
    train(tmp_path / "run")
    assert fake_mlflow.read_text().split() == ["log_batch"] * 4 + ["log_artifact", "set_terminated"]
    assert (tmp_path / "run" / "mlflow-run").read_text() == "run of ada\n"
    train(tmp_path / "run")
    assert fake_mlflow.read_text().split()[6:] == ["update_run", *["log_batch"] * 3, "log_artifact", "set_terminated"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("says", "end"),
    [
        ("API request failed with error code 401", "401: log-in refused, see ~/.mlflow/credentials\n"),
        ("API request failed with error code 500: database or disk is full", "database or disk is full\n"),
        ("HTTPConnectionPool: Max retries exceeded: Connection refused", "Connection refused\n"),
    ],
)
def test_an_mlflow_that_does_not_take_it_is_said_once_asked_no_more_and_ends_no_training(
    says: str, end: str, fake_mlflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("FAKE_SAYS", says)
    train(tmp_path / "run")
    said = capsys.readouterr().out
    assert said.startswith("train: goes on without MLflow at http://100.64.0.1:5000: ")
    assert said.endswith(end)
    assert said.count("train:") == 1
    assert fake_mlflow.read_text().split() == ["log_batch"]
