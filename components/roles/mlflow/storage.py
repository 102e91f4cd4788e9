"""Where MLflow may keep files: in the folder that it serves, and nowhere else that a request or a database names.

A location of an experiment, a model or a trace is a user's word. MLflow takes a path of the server's disk for one, or
another machine's address, and reads, writes and deletes there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from components.roles.mlflow.paths import is_plain

SCHEME = "mlflow-artifacts:"
# A model's files may be named by the run or the model that has them.
NAMES = ("runs:", "models:")
REFUSED = (
    "{what} '{location}' is not taken: this server keeps all files itself, below mlflow-artifacts:/. "
    "Leave it out, or write mlflow-artifacts:/ and a path."
)


def is_own(location: str, *others: str) -> bool:
    """Return whether a location is a plain path of the server's own storage; `others` are more schemes that are."""
    scheme, found, path = location.partition(":")
    if f"{scheme}{found}" not in (SCHEME, *others) or re.search("[?#%]", path):
        return False
    return is_plain(path)


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path lies in a folder, with all links followed."""
    folder = os.path.realpath(folder)
    return os.path.commonpath([folder, os.path.realpath(path)]) == folder


def confine(folder: str) -> None:
    """Have MLflow of this process open files of the folder alone, and store no location that is not its own."""
    _open_nothing_else(folder)
    _store_nothing_else()


def _refusal(what: str, location: str) -> Exception:
    from mlflow.exceptions import MlflowException  # type: ignore[import-not-found]

    refusal: Exception = MlflowException.invalid_parameter_value(REFUSED.format(what=what, location=location))
    return refusal


def _open_nothing_else(folder: str) -> None:
    from mlflow.store.artifact import artifact_repository_registry as registry  # type: ignore[import-not-found]
    from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository  # type: ignore[import-not-found]

    def own_folder(artifact_uri: str, tracking_uri: str | None = None, registry_uri: str | None = None) -> Any:
        repository = LocalArtifactRepository(artifact_uri, tracking_uri, registry_uri)
        delete = repository.delete_artifacts

        def check(path: str | None) -> None:
            if not is_inside(str(Path(repository.artifact_dir, path or "")), folder):
                raise _refusal("the location", artifact_uri)

        def delete_artifacts(artifact_path: str | None = None) -> None:
            # MLflow itself looks at each other path that it is asked for, and not at this one.
            check(artifact_path)
            delete(artifact_path)

        check(None)
        repository.delete_artifacts = delete_artifacts
        return repository

    # Whichever scheme is left out has no repository: nothing is fetched from other machines.
    registry._artifact_repository_registry._registry = {"": own_folder, "file": own_folder}


def _store_nothing_else() -> None:
    from mlflow.server import handlers  # type: ignore[import-not-found]
    from mlflow.store.model_registry.dbmodels import models as registry  # type: ignore[import-not-found]
    from mlflow.store.tracking.dbmodels import models as tracking  # type: ignore[import-not-found]
    from mlflow.utils.mlflow_tags import MLFLOW_ARTIFACT_LOCATION  # type: ignore[import-not-found]

    # A prompt has no files: its text is in the database.
    prompts = handlers._PROMPT_SOURCE_PLACEHOLDERS

    def check_request(location: str, field: str) -> None:
        of_model = field == "source"
        if not is_own(location, *(NAMES if of_model else ())) and not (of_model and location in prompts):
            raise _refusal(field, location)

    def check_row(row: Any, fields: Iterable[str], *others: str) -> None:
        for field in fields:
            location = getattr(row, field)
            # MLflow names an experiment's place once it has its number.
            if location and location not in prompts and not is_own(location, *others):
                raise _refusal(field, location)

    # Said in the words of the request, where MLflow looks at it; and once more of each row, whichever way it came.
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
