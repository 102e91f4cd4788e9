"""Start MLflow's tracking server for its unit.

Usage: mlflow-start DATABASE ARTIFACTS     with MLflow's Python; ADDRESS, PORT, NAME in the environment

MLflow's own command prepares the database and the environment. Then this program serves instead of it
(`mlflow-start serve ARTIFACTS`), limited to a list of requests (served_requests.py) and one folder for files
(storage.py). It is a single process, because SQLite allows one writer at a time; requests run in threads.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.roles.mlflow.served_requests import only_served
from components.roles.mlflow.storage import confine

SERVE = "serve"


def main(argv: Sequence[str]) -> int:
    """Prepare the server and become it, or serve."""
    if argv[0] == SERVE:
        return serve(argv[1], os.environ)
    database, artifacts = argv
    # Remove uploads that were cut off when the server last stopped.
    uploads = Path(artifacts, "uploads")
    shutil.rmtree(uploads, ignore_errors=True)
    uploads.mkdir()
    # MLflow requires this key, which signs one form in the browser. No login depends on it.
    os.environ["MLFLOW_FLASK_SERVER_SECRET_KEY"] = secrets.token_hex(32)
    import mlflow.server  # type: ignore[import-not-found]
    from mlflow.cli import cli  # type: ignore[import-not-found]

    def replace_process(_command: Sequence[str], extra_env: Mapping[str, str] | None = None, **_: Any) -> None:
        # Otherwise MLflow would keep running beside its server, with 200 MB, and the server would import modules from
        # the working directory.
        command = [sys.executable, "-I", sys.argv[0], SERVE, artifacts]
        os.execve(command[0], command, {**os.environ, **(extra_env or {})})  # noqa: S606

    mlflow.server._exec_cmd = replace_process
    cli(options(database, artifacts, os.environ), prog_name="mlflow")
    return 1


def options(database: str, artifacts: str, environment: Mapping[str, str]) -> list[str]:
    """Return the arguments of MLflow's own command."""
    address, name = environment["ADDRESS"], environment["NAME"]
    # Host names in browsers: the address, the head node's name with or without the tailnet's, and the end of a tunnel.
    names = [address, name, f"{name}.*", "localhost"]
    hosts = ",".join(f"{name},{name}:*" for name in names)
    return [
        *("server", "--app-name", "basic-auth", "--workers", "1", "--host", address, "--port", environment["PORT"]),
        *("--allowed-hosts", hosts, "--backend-store-uri", f"sqlite:///{database}"),
        *("--serve-artifacts", "--artifacts-destination", f"{artifacts}/files"),
    ]


def serve(artifacts: str, environment: Mapping[str, str]) -> int:
    """Answer requests until systemd stops the server."""
    confine(f"{artifacts}/files")
    import uvicorn  # type: ignore[import-not-found]
    from mlflow.server.auth import create_app  # type: ignore[import-not-found]

    # proxy_headers is off because a client on this machine could put any address into those headers.
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
