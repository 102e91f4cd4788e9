"""MLflow's tracking server, as its unit starts it.

Usage: mlflow-start DATABASE ARTIFACTS     by the Python that has MLflow; ADDRESS, PORT, NAME in the environment

MLflow's own command prepares the database and the environment, and then this program serves in its place
(`mlflow-start serve ARTIFACTS`): with a list of requests (paths.py) and one folder for files (storage.py).
One process: SQLite takes one writer at a time, and requests have threads of their own.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.roles.mlflow.paths import only_served
from components.roles.mlflow.storage import confine

SERVE = "serve"


def main(words: Sequence[str]) -> int:
    """Become the server."""
    if words[0] == SERVE:
        return serve(words[1], os.environ)
    database, artifacts = words
    # What was uploading when it ended.
    uploads = Path(artifacts, "uploads")
    shutil.rmtree(uploads, ignore_errors=True)
    uploads.mkdir()
    # The seal of one form in the browser, which MLflow wants to be given: nobody's log-in.
    os.environ["MLFLOW_FLASK_SERVER_SECRET_KEY"] = secrets.token_hex(32)
    import mlflow.server  # type: ignore[import-not-found]
    from mlflow.cli import cli  # type: ignore[import-not-found]

    def become(_command: Sequence[str], extra_env: Mapping[str, str] | None = None, **_: Any) -> None:
        # MLflow would stay beside its server, with 200 MB, and have it import modules of the working directory.
        again = [sys.executable, "-I", sys.argv[0], SERVE, artifacts]
        os.execve(again[0], again, {**os.environ, **(extra_env or {})})  # noqa: S606

    mlflow.server._exec_cmd = become
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
    ]


def serve(artifacts: str, environment: Mapping[str, str]) -> int:
    """Answer requests until the end."""
    confine(f"{artifacts}/files")
    import uvicorn  # type: ignore[import-not-found]
    from mlflow.server.auth import create_app  # type: ignore[import-not-found]

    # proxy_headers: a client of this machine could write any address into them.
    uvicorn.run(
        only_served(create_app()),
        host=environment["ADDRESS"],
        port=int(environment["PORT"]),
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
    )
    return 0
