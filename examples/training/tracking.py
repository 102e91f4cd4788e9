"""What a run was and how it went, told to MLflow where there is one. It never ends a run, and holds none up for long.

MLFLOW_TRACKING_URI, which the cluster sets, says where. A client: `pip install mlflow-skinny`.
"""

import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# A server that does not answer is waited for once, and not for minutes at each step.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")


class Tracking:
    """One run at MLflow, of the job's first rank; on the others, and where there is no MLflow, nothing."""

    def __init__(self, folder: Path, params: Mapping[str, Any], rank: int) -> None:
        """folder: of the checkpoints. A run that goes on there goes on at MLflow too."""
        self._client: Any = None
        self._run, self._losses = "", list[tuple[int, float]]()
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        self._on = bool(rank == 0 and uri and importlib.util.find_spec("mlflow"))
        self._try(lambda: self._begin(folder / "mlflow-run", params))

    def _begin(self, noted: Path, params: Mapping[str, Any]) -> None:
        import mlflow
        from mlflow.entities import Param

        client = mlflow.MlflowClient()
        if noted.exists():
            self._run = noted.read_text(encoding="utf-8").strip()
            client.update_run(self._run, status="RUNNING")
        else:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "training")
            self._run = soon(lambda: _new_run(client, name))
            client.log_batch(self._run, params=[Param(key, str(value)) for key, value in params.items()])
            noted.parent.mkdir(parents=True, exist_ok=True)
            noted.write_text(f"{self._run}\n", encoding="utf-8")
        self._client = client

    def loss(self, step: int, value: float) -> None:
        """Keep a loss until the next `send`."""
        if self._on:
            self._losses.append((step, value))

    def send(self, **figures: tuple[int, float]) -> None:
        """Send losses that were kept, and figures of some step, by name."""
        losses, self._losses = self._losses, []
        told = [("loss", *loss) for loss in losses] + [(name, *figure) for name, figure in figures.items()]
        self._try(lambda: self._send(told))

    def _send(self, told: Sequence[tuple[str, int, float]]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        # MLflow takes a thousand at a time.
        for first in range(0, len(told), 1000):
            part = [Metric(name, value, now, step) for name, step, value in told[first : first + 1000]]
            self._client.log_batch(self._run, metrics=part)

    def end(self, checkpoint: Path | None) -> None:
        """Say that the run has ended, and keep its last checkpoint there."""
        if checkpoint is not None:
            self._try(lambda: self._client.log_artifact(self._run, str(checkpoint), "checkpoints"))
        self._try(lambda: self._client.set_terminated(self._run))

    def _try(self, call: Callable[[], object]) -> None:
        if not self._on:
            return
        try:
            call()
        except Exception as error:  # noqa: BLE001  # whatever it is, training goes on
            self._on = False
            said = " ".join(str(error).split())[:200] or type(error).__name__
            where = os.environ["MLFLOW_TRACKING_URI"]
            print(f"train: goes on without MLflow at {where}: {said}{_hint(said)}", flush=True)


def _new_run(client: Any, name: str) -> str:
    experiment = client.get_experiment_by_name(name)
    known = experiment.experiment_id if experiment else client.create_experiment(name)
    return str(client.create_run(known).info.run_id)


def soon(call: Callable[[], str]) -> str:
    """Call until it succeeds, five times at most: another job of the same user may be making the experiment, which is
    there a moment before its maker may write to it."""
    for nap in (0.2, 0.4, 0.8, 1.6):
        try:
            return call()
        except Exception as error:  # an MlflowException, of a module that may not be there
            if getattr(error, "error_code", "") not in ("RESOURCE_ALREADY_EXISTS", "PERMISSION_DENIED"):
                raise
            time.sleep(nap)
    return call()


def _hint(said: str) -> str:
    return ": log-in refused, see ~/.mlflow/credentials" if "401" in said else ""
