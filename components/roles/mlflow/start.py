"""MLflow's tracking server, as its unit starts it.

Usage: mlflow-start DATABASE ARTIFACTS     by the Python that has MLflow; ADDRESS, PORT, NAME in the environment

One process: SQLite takes one writer at a time, and requests have threads of their own.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def main(words: Sequence[str]) -> int:
    """Become the server."""
    database, artifacts = words
    # What was uploading when it ended.
    uploads = Path(artifacts, "uploads")
    shutil.rmtree(uploads, ignore_errors=True)
    uploads.mkdir()
    # The seal of one form in the browser, which MLflow wants to be given: nobody's log-in.
    os.environ["MLFLOW_FLASK_SERVER_SECRET_KEY"] = secrets.token_hex(32)
    import mlflow.server  # type: ignore[import-not-found]
    from mlflow.cli import cli  # type: ignore[import-not-found]

    # MLflow would stay beside its server, with 200 MB, and wait for it.
    mlflow.server._exec_cmd = _become
    cli(options(database, artifacts, os.environ), prog_name="mlflow")
    return 1


def options(database: str, artifacts: str, told: Mapping[str, str]) -> list[str]:
    """The words of MLflow's own command."""
    # How browsers call it: its address, the head node's name, with or without the tailnet's, and a tunnel's end.
    names = [told["ADDRESS"], told["NAME"], f"{told['NAME']}.*", "localhost"]
    hosts = ",".join(f"{name},{name}:*" for name in names)
    return [
        *("server", "--app-name", "basic-auth", "--workers", "1", "--host", told["ADDRESS"], "--port", told["PORT"]),
        *("--allowed-hosts", hosts, "--backend-store-uri", f"sqlite:///{database}"),
        *("--serve-artifacts", "--artifacts-destination", f"{artifacts}/files"),
        *("--uvicorn-opts", "--no-access-log --log-level warning"),
    ]


def _become(command: Sequence[str], extra_env: Mapping[str, str] | None = None, **_: Any) -> None:
    # The words are MLflow's own.
    os.execvpe(command[0], [*command], {**os.environ, **(extra_env or {})})  # noqa: S606
