"""Start MLflow's tracking server for its unit.

Usage: mlflow-start DATABASE ARTIFACTS     with MLflow's Python; ADDRESS, PORT, NAME in the environment

MLflow's own command prepares the database and the environment. Then this program serves instead of it (`mlflow-start
serve ARTIFACTS`), limited to a list of requests (served_requests.py) and one folder for files. It is a single process,
because SQLite allows one writer at a time; requests run in threads.

Files are restricted to that folder, whatever location a request or the database names. Users set the locations of
experiments, models and traces. MLflow accepts any path on the server's disk or another machine's address as a location,
and reads, writes and deletes there.
"""

import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.roles.jobs.mlflow.served_requests import is_plain, only_served

# A model can name the run or the model that has its files.
NAMES = ("runs:", "models:")
REFUSED = (
    "{field} '{location}' is refused: this server keeps all files itself, below mlflow-artifacts:/. "
    "Leave it out, or write mlflow-artifacts:/ and a path."
)


def is_own(location: str, *others: str) -> bool:
    """Return whether a location is a plain path in the server's own storage. `others` are more accepted schemes."""
    scheme, colon, path = location.partition(":")
    if f"{scheme}{colon}" not in ("mlflow-artifacts:", *others) or re.search("[?#%]", path):
        return False
    return is_plain(path)


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path, with all links followed, lies in a folder."""
    folder = os.path.realpath(folder)
    return os.path.commonpath([folder, os.path.realpath(path)]) == folder


def confine(folder: str) -> None:
    """Make MLflow in this process open files in this folder only, and store no location outside it."""
    _restrict_files(folder)
    _restrict_locations()


def _refusal(field: str, location: str) -> Exception:
    from mlflow.exceptions import MlflowException  # type: ignore[import-not-found]

    refusal: Exception = MlflowException.invalid_parameter_value(REFUSED.format(field=field, location=location))
    return refusal


def _restrict_files(folder: str) -> None:
    from mlflow.store.artifact import artifact_repository_registry as registry  # type: ignore[import-not-found]
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository  # type: ignore[import-not-found]

    def repository_in_folder(
        artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None
    ) -> Any:
        repository = LocalArtifactRepository(artifact_uri, tracking_uri, registry_uri)
        delete = repository.delete_artifacts

        def check(path: str | None) -> None:
            if not is_inside(str(Path(repository.artifact_dir, path or "")), folder):
                raise _refusal("the location", artifact_uri)

        def delete_artifacts(artifact_path: str | None = None) -> None:
            # MLflow checks the paths of all other requests, but not of this one.
            check(artifact_path)
            delete(artifact_path)

        check(None)
        repository.delete_artifacts = delete_artifacts
        return repository

    # All other schemes have no repository, so MLflow fetches nothing from other machines.
    registry._artifact_repository_registry._registry = {"": repository_in_folder, "file": repository_in_folder}


def _restrict_locations() -> None:
    from mlflow.server import handlers  # type: ignore[import-not-found]
    from mlflow.store.model_registry.dbmodels import models as registry  # type: ignore[import-not-found]
    from mlflow.store.tracking.dbmodels import models as tracking  # type: ignore[import-not-found]
    from mlflow.utils.mlflow_tags import MLFLOW_ARTIFACT_LOCATION  # type: ignore[import-not-found]

    # A prompt has no files: its text is in the database.
    prompts = handlers._PROMPT_SOURCE_PLACEHOLDERS

    def check_request(location: str, field: str) -> None:
        is_model = field == "source"
        if not is_own(location, *(NAMES if is_model else ())) and not (is_model and location in prompts):
            raise _refusal(field, location)

    def check_row(row: Any, fields: Iterable[str], *others: str) -> None:
        for field in fields:
            location = getattr(row, field)
            # MLflow sets an experiment's location after the experiment has its id.
            if location and location not in prompts and not is_own(location, *others):
                raise _refusal(field, location)

    # Checked in the request, where the error can name its field, and in each row, for all other ways into the database.
    if not callable(handlers._validate_artifact_uri_scheme):
        raise TypeError("this release of MLflow checks locations elsewhere")
    handlers._validate_artifact_uri_scheme = check_request
    _listen(tracking.SqlExperiment, lambda row: check_row(row, ["artifact_location"]))
    _listen(tracking.SqlLoggedModel, lambda row: check_row(row, ["artifact_location"]))
    _listen(tracking.SqlRun, lambda row: check_row(row, ["artifact_uri"]))
    _listen(registry.SqlModelVersion, lambda row: check_row(row, ["source", "storage_location"], *NAMES))
    _listen(
        tracking.SqlTraceTag,
        lambda row: check_row(row, ["value"]) if row.key == MLFLOW_ARTIFACT_LOCATION else None,
    )


def _listen(model: Any, check: Any) -> None:
    from sqlalchemy import event  # type: ignore[import-not-found]

    for name in ("before_insert", "before_update"):
        event.listen(model, name, lambda _mapper, _connection, row: check(row))


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
